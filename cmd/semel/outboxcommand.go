package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/semelhq/semel/cmd/internal/secret"
	"github.com/semelhq/semel/cmd/internal/stores"
	"github.com/semelhq/semel/outbox"
)

type outboxCommand struct {
	Store              string `default:"sqlite://semel.db" placeholder:"URL" help:"The store in whose database the outbox is, SQLite or PostgreSQL; it must exist (default ${default})."`
	EncryptionKeysFile string `placeholder:"FILE" help:"The encryption keys of the outbox, to show payloads."`
	JSON               bool   `name:"json" help:"Print JSON, for scripts: an array from list, requeue and drop, an object from show and check."`

	List    outboxList    `cmd:"" help:"List messages, in the order of their ids."`
	Show    outboxShow    `cmd:"" help:"Show all that is known about a message, and what was decided about it."`
	Requeue outboxRequeue `cmd:"" help:"Have dead letters sent again, and messages that wait sent at once."`
	Drop    outboxDrop    `cmd:"" help:"Delete messages: what was not sent never will be."`
	Check   outboxCheck   `cmd:"" help:"Find commits without a message, by a query that says which message each should have."`
}

func (*outboxCommand) Help() string {
	return `A message in an outbox is

  pending   to be sent; the list has "leased" if a relay is about to send it, and
            "waiting" after a failure or for its delay
  dead      given up: a dead letter; "holds" if later messages of its key wait for it
  sent      acknowledged by the broker, and kept for a while

Every requeue and drop needs a reason, and is kept with it in the store.

Examples:

    semel outbox list --state dead
    semel outbox show ID
    semel outbox requeue ID --reason "the broker has the topic now"
    semel outbox requeue --all-dead --topic orders --reason "the broker has the topic now"
    semel outbox drop ID --reason "test data"

drop asks first, or needs --yes.

The exit status is 0 if it was done, 1 if it could not be done, was refused or not found, or if check has found something, ` +
		`2 if it was asked for wrongly.`
}

// A messageFilter selects messages.
type messageFilter struct {
	Topic  string `placeholder:"NAME" help:"Only those of this topic."`
	Tenant string `placeholder:"NAME" help:"Only those of this tenant."`
	Key    string `placeholder:"KEY" help:"Only those of this key."`
}

func (f *messageFilter) query() outbox.Query {
	return outbox.Query{Topic: f.Topic, Tenant: f.Tenant, Key: f.Key}
}

type outboxList struct {
	State string `default:"" enum:",pending,dead,sent" placeholder:"STATE" help:"Only those that are pending, dead or sent."`
	messageFilter
	After string `placeholder:"ID" help:"Only those whose ids come after this one: the next page."`
	Limit int    `default:"100" placeholder:"N" help:"At most so many; 0 is all (default ${default})."`
}

func (*outboxList) Help() string {
	return `Ids that an outbox makes are in the order of time, the oldest first. The table tells when a message could first be sent, how ` +
		`often that has failed, and the last error. Times are those of the store's clock.

Examples:

    semel outbox list --state dead --topic orders
    semel outbox list --tenant acme --limit 0 --json
    semel outbox list --after ID`
}

type outboxShow struct {
	ID    string `arg:"" name:"id" help:"The message's id."`
	Body  bool   `help:"Print the payload too, and the values of the headers. That you did is kept in the store."`
	Actor string `placeholder:"NAME" help:"With --body: who looks (default: you, at this machine)."`
}

func (*outboxShow) Help() string {
	return `If the outbox is encrypted, --encryption-keys-file says by which keys. Put -- before an id that begins with a dash.

Examples:

    semel outbox show 01987e4c-6d1f-7c3e-9b1a-0242ac120002
    semel outbox show ID --body`
}

// A messageChoice is what a decision is about, and by whom and why.
type messageChoice struct {
	IDs     []string `arg:"" optional:"" name:"id" help:"The messages' ids."`
	AllDead bool     `help:"Instead of ids: all dead letters, or with --topic, --tenant and --key those of one."`
	messageFilter
	Reason string `required:"" placeholder:"TEXT" help:"Why; it is kept in the store."`
	Actor  string `placeholder:"NAME" help:"Who decides (default: you, at this machine)."`
}

// AfterApply reports what can be told to be wrong before the store is opened.
func (c *messageChoice) AfterApply() error {
	switch {
	case len(c.IDs) == 0 && !c.AllDead:
		return errors.New("say which messages: their ids, or --all-dead")
	case len(c.IDs) > 0 && (c.AllDead || c.messageFilter != messageFilter{}):
		return errors.New("ids say it all: leave out --all-dead, --topic, --tenant and --key")
	case strings.TrimSpace(c.Reason) == "":
		return errors.New("--reason is empty")
	}
	return nil
}

type outboxRequeue struct{ messageChoice }

func (*outboxRequeue) Help() string {
	return `A dead letter is pending again, with all its attempts. Later messages of its key wait for it from then on; those that were sent ` +
		`meanwhile have overtaken it. It may have arrived before: it has the same id, by which a consumer recognises it. A message ` +
		`that waits, after a failure or for its delay, is due at once. What is sent or leased is left alone.

Examples:

    semel outbox requeue ID --reason "the broker has the topic now"
    semel outbox requeue --all-dead --reason "the broker is back"
    semel outbox requeue --all-dead --topic orders --tenant acme --reason "mended"`
}

type outboxDrop struct {
	messageChoice
	Yes bool `help:"Without a question, for scripts."`
}

func (*outboxDrop) Help() string {
	return `What was not sent never will be, though the data that it tells of is committed. Later messages of its key no longer wait for it. ` +
		`What is leased is left alone.

So you are asked (y/N). Without a terminal to ask at it is refused, with exit status 2, unless --yes is given.

Examples:

    semel outbox drop ID --reason "the order was a test"
    semel outbox drop --all-dead --topic orders --reason "the topic is gone" --yes`
}

type outboxCheck struct {
	Query string `arg:"" help:"A query on the store's database; - is standard input."`
	Limit int    `default:"100" placeholder:"N" help:"Print at most so many rows without a message; 0 is all (default ${default})."`
}

func (*outboxCheck) Help() string {
	return `The query has a row for each commit that should have a message, with the column id: the message's id. Or it has the columns topic ` +
		`and key, and tenant if you like: then any message of these counts. Its other columns are printed with the rows that have no message ` +
		`in the outbox.

Messages that were sent count as long as the outbox keeps them (outbox.Options.Keep); so let the query look back no further. All is ` +
		`read at one moment, and nothing is written: a transaction that commits meanwhile is seen with its message or not at all.

Examples:

    semel outbox check "SELECT 'placed-' || id AS id, customer FROM orders
        WHERE placed_at > now() - interval '6 hours'"
    semel outbox check "SELECT 'orders' AS topic, id AS key FROM orders" --json
    semel outbox check - --limit 0 < orders.sql

The exit status is 1 if a row has no message.`
}

// AfterApply does the same as that of a choice.
func (c *outboxList) AfterApply() error { return limited(c.Limit) }

// AfterApply does the same as that of a choice.
func (c *outboxCheck) AfterApply() error { return limited(c.Limit) }

func limited(n int) error {
	if n < 0 {
		return fmt.Errorf("--limit is negative: %d", n)
	}
	return nil
}

var (
	_ kong.HelpProvider = (*outboxCommand)(nil)
	_ kong.HelpProvider = (*outboxList)(nil)
	_ kong.HelpProvider = (*outboxShow)(nil)
	_ kong.HelpProvider = (*outboxRequeue)(nil)
	_ kong.HelpProvider = (*outboxDrop)(nil)
	_ kong.HelpProvider = (*outboxCheck)(nil)
)

// outbox runs one of the commands above on the outbox of a store.
func (m *Main) outbox(ctx context.Context, command string, c *outboxCommand) (err error) {
	keyring, err := secret.Keyring(c.EncryptionKeysFile)
	if err != nil {
		return err
	}
	opened, err := openExisting(ctx, c.Store, stores.Options{Log: newLog(m.Stderr, "text", "warn")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	options := outbox.Options{}
	if keyring != nil {
		options.Keyring = keyring.AllowPlain() // an operator may see what was added before there was encryption
	}
	box, err := opened.Outbox(ctx, options)
	if err != nil {
		return err
	}
	o := &outboxRun{Main: m, box: box, opened: opened, json: c.JSON}
	switch command {
	case "outbox list":
		return o.list(ctx, &c.List)
	case "outbox show":
		return o.show(ctx, &c.Show)
	case "outbox requeue":
		return o.decide(ctx, &requeue, &c.Requeue.messageChoice, true, box.Requeue)
	case "outbox drop":
		return o.decide(ctx, &drop, &c.Drop.messageChoice, c.Drop.Yes, box.Drop)
	}
	return o.check(ctx, &c.Check)
}
