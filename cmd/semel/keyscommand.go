package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/admin"
	"github.com/semelhq/semel/cmd/internal/secret"
	"github.com/semelhq/semel/cmd/internal/stores"
	"github.com/semelhq/semel/driver"
)

type keysCommand struct {
	Store              string `default:"sqlite://semel.db" placeholder:"URL" help:"The gateway's store, which must exist (default ${default})."`
	IdentitySecretFile string `placeholder:"FILE" help:"The gateway's identity secret, to find an operation by its key (default: $SEMEL_IDENTITY_SECRET, else the file next to the store)."`
	Cache              string `placeholder:"URL" help:"The gateway's --cache, so that what is decided is known there too."`
	EncryptionKeysFile string `placeholder:"FILE" help:"The gateway's encryption keys, to show answers, operations and correlation ids, to find by these, and to store an answer."`
	JSON               bool   `name:"json" help:"Print JSON, for scripts: one object; from list, and from find if it meets several, one array."`

	Find     keysFind     `cmd:"" help:"Find an operation: by its key and who sent it, its id, the beginning of that, or a correlation id."`
	List     keysList     `cmd:"" help:"List operations, the newest first."`
	Show     keysShow     `cmd:"" help:"Show all that is known about an operation, and what was decided about it."`
	Complete keysComplete `cmd:"" help:"Settle an operation as done, with the answer that repeats get from now on."`
	Release  keysRelease  `cmd:"" help:"Set an operation free, so that the next attempt runs it: you promise that nothing happened."`
	Forget   keysForget   `cmd:"" help:"Delete an operation's record, so that its key is new: a repeat runs, whatever has happened."`
}

func (*keysCommand) Help() string {
	return `An operation is what one key of one principal stands for. It reads as

  running   a run owns it; repeats wait or get 409
  done      it has ended; repeats get its answer, or 409 replay-unavailable if it has none
  free      it was released, or lost where it may run again; the next attempt runs it
  unknown   it may have taken effect; repeats get 409 outcome-unknown until somebody decides
  expired   it has ended, and its answer is gone; repeats get 422 key-expired

Find out at the source of the effect what happened, then decide: complete, release or forget. Every decision needs a ` +
		`reason, and is kept with it in the store.

Examples:

    semel keys list --state unknown
    semel keys find '"order-1234"' --scope acme
    semel keys find 4bf92f3577b34da6a3ce929d0e0e4736
    semel keys show ID
    semel keys complete ID --status 201 --body-file answer.json --reason "charged, says the bank"
    semel keys release ID --reason "the bank knows of no charge"

release and forget let an effect happen again, if it has happened: they ask first, or need --yes.

The exit status is 0 if it was done, 1 if it could not be done, was refused or not found, 2 if it was asked for wrongly.`
}

// A principal is the scope of the keys that a command is about.
type principal struct {
	Scope  string `placeholder:"PRINCIPAL" help:"Who sent the key, as the gateway's scope header had it."`
	Single bool   `help:"The gateway runs with --scope single."`
	Kind   string `default:"http" enum:"http,do,message,saga" placeholder:"KIND" help:"What the key was used for: http, or with the library do, message or saga (default ${default})."`
}

// singleScope is the scope of all keys where there is one principal only.
const singleScope = "single"

// given returns the scope, "" if none was given.
func (p *principal) given() (string, error) {
	switch {
	case p.Single && p.Scope != "":
		return "", usageError{errors.New("--scope and --single: who sent the key is one of them")}
	case p.Single:
		return singleScope, nil
	}
	return p.Scope, nil
}

type keysFind struct {
	What string `arg:"" help:"With --scope or --single the key, in its quotes or without. Else an operation's id, its first 8 characters or more, or a correlation id."`
	principal
	Operation string `placeholder:"METHOD /PATH" help:"The request's method and path, on a route where they are part of the identity (per_operation); with --kind do the operation's name."`
}

func (*keysFind) Help() string {
	return `With --scope or --single it is a key. It is hashed here, as the gateway does it: raw keys are not in the store.

Without them it is an id or a correlation id, as logs have them. It is tried as an operation's id, then, if it has 8 ` +
		`characters or more, as the beginning of one, then as a correlation id: that of the request that started the last run. ` +
		`What is found first counts; if that is several operations they are listed, the newest first, at most ` + strconv.Itoa(mostFound) + `. ` +
		`The ids of one principal share their first 21 characters. A correlation id has no index: the store compares that of every record. Put -- before what begins with a dash.

Examples:

    semel keys find order-1234 --scope acme
    semel keys find '"order-1234"' --single
    semel keys find order-1234 --single --operation "POST /orders/7/payments"
    semel keys find q83vEjRW
    semel keys find 4bf92f3577b34da6a3ce929d0e0e4736`
}

type keysList struct {
	State     string `default:"" enum:",running,done,free,unknown,expired" placeholder:"STATE" help:"Only those that read so: running, done, free, unknown or expired."`
	Operation string `placeholder:"NAME" help:"Only those of this operation, such as \"POST /payments\"."`
	Since     string `placeholder:"WHEN" help:"Only those whose last run began since then: so long ago, such as 90m or 24h, or since an instant, such as 2026-11-29T08:30:00Z (RFC 3339)."`
	Order     string `default:"newest" enum:"newest,oldest,id" placeholder:"ORDER" help:"newest or oldest, by when the last run began, or id (default ${default})."`
	Limit     int    `default:"100" placeholder:"N" help:"At most so many, the first in that order; 0 is all (default ${default})."`
	principal
}

func (*keysList) Help() string {
	return `To put them in order it reads every record that the flags don't rule out, whatever the limit, in pages that hold up ` +
		`nobody; on a large store that takes its time. It keeps no more in memory than it prints. On SQLite and PostgreSQL ` +
		`--state running, --state unknown, --scope and --single read only what they select. --operation and the other states are ` +
		`compared by the store, row by row, and only what matches is read; --since saves nothing. On Redis all keys are gone through, ` +
		`and the first bytes of each record are compared there. With encryption keys --operation saves nothing: each name has to be decrypted here.

Examples:

    semel keys list --state unknown --order oldest
    semel keys list --since 1h --operation "POST /payments"
    semel keys list --scope acme --limit 0 --json`
}

type keysShow struct {
	ID    string `arg:"" name:"id" help:"The operation's id."`
	Body  bool   `help:"Print the stored answer too: its body and the values of its headers. That you did is kept in the store."`
	Actor string `placeholder:"NAME" help:"With --body: who looks (default: you, at this machine)."`
}

// A target is the operation that a decision is about, and by whom and why.
type target struct {
	ID  string `arg:"" optional:"" name:"id" help:"The operation's id."`
	Key string `placeholder:"KEY" help:"Instead of the id: the key, as find takes it."`
	principal
	Operation string `placeholder:"METHOD /PATH" help:"With --key, as find takes it."`
	Reason    string `required:"" placeholder:"TEXT" help:"Why; it is kept in the store."`
	Actor     string `placeholder:"NAME" help:"Who decides (default: you, at this machine)."`
	Force     bool   `help:"Without a question, and also if a run owns the operation. Its handler may still be at work: its outcome no longer counts, but its effects may come after your decision."`
}

type keysComplete struct {
	target
	Status   int      `placeholder:"N" help:"The answer's status, 200 to 599."`
	Header   []string `sep:"none" placeholder:"'NAME: VALUE'" help:"A header of the answer; may be given several times."`
	BodyFile string   `placeholder:"FILE" help:"The answer's body; - is standard input (default: none)."`
	NoAnswer bool     `help:"Instead of --status: it is done, and there is no answer. Repeats get 409 replay-unavailable."`
}

func (*keysComplete) Help() string {
	return `The operation took effect, but its run was lost. Repeats get the answer that you give.

Examples:

    semel keys complete ID --status 201 --header 'Location: /payments/42' \
        --header 'Content-Type: application/json' --body-file answer.json \
        --reason "charged, says the bank"
    semel keys complete --key order-1234 --scope acme --no-answer --reason "charged"`
}

type keysRelease struct {
	target
	Yes bool `help:"Without a question, for scripts."`
}

func (*keysRelease) Help() string {
	return `By this you promise that the operation had no effect and will have none: the next attempt runs it, or a gateway by itself
if it is owed to its client. If it had one, that is repeated. So you are asked (y/N) if its outcome is unknown. Without a ` +
		`terminal to ask at it is refused, with exit status 2, unless --yes or --force is given.

Examples:

    semel keys release ID --reason "the bank knows of no charge"
    semel keys release ID --reason "the bank knows of no charge" --yes`
}

type keysForget struct {
	target
	Yes bool `help:"Without a question, for scripts."`
}

func (*keysForget) Help() string {
	return `The key is new afterwards, and any request may use it. What the operation has done is not undone: the next request with the ` +
		`key runs, also a late one of its client that is still on its way, and takes effect once more. What was decided about the ` +
		`operation is kept.

So you are asked (y/N) unless it was released and nothing has happened. Without a terminal to ask at it is refused, with exit ` +
		`status 2, unless --yes or --force is given.

Examples:

    semel keys forget ID --reason "test data"
    semel keys forget ID --reason "test data" --yes`
}

// keys runs one of the commands above on the operations of a store.
func (m *Main) keys(ctx context.Context, command string, c *keysCommand) (err error) {
	keyring, err := secret.Keyring(c.EncryptionKeysFile)
	if err != nil {
		return err
	}
	opened, err := openExisting(ctx, c.Store, stores.Options{Cache: c.Cache, Log: newLog(m.Stderr, "text", "warn")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	desk, err := admin.New(opened.Store, admin.Options{Encryption: keyring})
	if err != nil {
		return err
	}
	k := &keysRun{Main: m, desk: desk, opened: opened, keyless: keyring == nil, secretFile: c.IdentitySecretFile, json: c.JSON}
	switch command {
	case "keys find":
		err = k.find(ctx, &c.Find)
	case "keys list":
		err = k.list(ctx, &c.List)
	case "keys show":
		err = k.show(ctx, &c.Show)
	case "keys complete":
		err = k.complete(ctx, &c.Complete)
	case "keys release":
		err = k.decide(ctx, "release", &c.Release.target, c.Release.Yes, desk.Release)
	case "keys forget":
		err = k.decide(ctx, "forget", &c.Forget.target, c.Forget.Yes, desk.Forget)
	}
	if errors.Is(err, admin.ErrInvalid) {
		return usageError{err}
	}
	return err
}

// AfterApply reports what can be told to be wrong before the store is opened.
func (c *keysFind) AfterApply() error {
	scope, err := c.given()
	switch {
	case err != nil:
		return err
	case scope == "" && (c.Operation != "" || c.Kind != string(semel.KindHTTP)):
		return errors.New("--operation and --kind go with a key; missing flags: --scope=PRINCIPAL or --single, to say who sent it")
	case scope == "" && c.What == "":
		return errors.New("say what to find: it is empty")
	}
	return nil
}

// AfterApply does the same as that of find.
func (c *keysList) AfterApply() error {
	_, err := c.given()
	if c.Limit < 0 {
		err = errors.Join(err, fmt.Errorf("--limit is negative: %d", c.Limit))
	}
	_, wrong := since(c.Since)
	return errors.Join(err, wrong)
}

// AfterApply does the same as that of find.
func (t *target) AfterApply() error {
	scope, err := t.given()
	switch {
	case err != nil:
		return err
	case t.ID == "" && t.Key == "":
		return errors.New("say which operation: its id, or --key with --scope or --single")
	case t.ID != "" && (t.Key != "" || scope != "" || t.Operation != ""):
		return errors.New("an id says it all: leave out --key, --scope, --single and --operation")
	case t.Key != "" && scope == "":
		return errors.New("missing flags: --scope=PRINCIPAL or --single, to say who sent the key")
	case strings.TrimSpace(t.Reason) == "":
		return errors.New("--reason is empty")
	}
	return nil
}

// AfterApply does the same as that of find.
func (c *keysComplete) AfterApply() error {
	if err := c.target.AfterApply(); err != nil {
		return err
	}
	switch {
	case c.NoAnswer && (c.Status != 0 || len(c.Header) > 0 || c.BodyFile != ""):
		return errors.New("--no-answer contradicts --status, --header and --body-file")
	case !c.NoAnswer && c.Status == 0:
		return errors.New("missing flags: --status=N, for the answer that repeats get, or --no-answer")
	}
	return nil
}

var (
	_ kong.HelpProvider = (*keysCommand)(nil)
	_ kong.HelpProvider = (*keysFind)(nil)
	_ kong.HelpProvider = (*keysList)(nil)
	_ kong.HelpProvider = (*keysComplete)(nil)
	_ kong.HelpProvider = (*keysRelease)(nil)
	_ kong.HelpProvider = (*keysForget)(nil)
)

// openExisting opens a store of another process as it is: a misspelt name makes no new one, and what is older is left
// to "semel migrate".
func openExisting(ctx context.Context, address string, o stores.Options) (*stores.Opened, error) {
	if err := exists(address); err != nil {
		return nil, err
	}
	if err := stores.CheckCache(o.Cache, address); err != nil {
		return nil, usageError{err}
	}
	o.NoMigration = true
	opened, err := stores.Open(ctx, address, o)
	if stores.OtherVersion(err) {
		return nil, fmt.Errorf("%w; see \"semel migrate --help\"", err)
	}
	return opened, err
}

// exists reports why there is no store at an address that another process may use. What else is wrong with the address
// is said by who opens it.
func exists(address string) error {
	if address == "memory://" {
		return errors.New("memory:// is in the gateway's own process, and can't be looked at from another")
	}
	file, ok := strings.CutPrefix(address, "sqlite://")
	if !ok || file == "" {
		return nil
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("store %q: there is no file %s, and this command makes none", address, file)
	}
	return nil
}

// whoAmI names the person who runs the program, at this machine.
func whoAmI() (string, error) {
	me, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("find out who you are: %w; say it with --actor", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find out which machine this is: %w; say who you are with --actor", err)
	}
	return me.Username + "@" + host, nil
}

// readingNamed is the reading that list --state names; none is ReadsAbsent, which selects all.
func readingNamed(name string) driver.Reading {
	for r := driver.ReadsRunning; r <= driver.ReadsExpired; r++ {
		if r.String() == name {
			return r
		}
	}
	return driver.ReadsAbsent
}
