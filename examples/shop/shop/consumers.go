package shop

// Consumer and inbox. A broker delivers a message at least once: after a crash, or if an acknowledgement is lost, it
// comes again. A consumer handles it in one transaction in which it is also marked as handled, by its id. So the effect
// is there once, and the acknowledgement comes after the commit. A message that nobody can handle goes to the dead
// letters, with the reason.

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/examples/shop/database"
)

// streamName is that of the stream in NATS, which keeps messages for a week.
const (
	streamName = "shop"
	streamKept = 7 * 24 * time.Hour
)

// A handler has its effect in tx.
type handler func(ctx context.Context, tx database.Tx, m consumer.Message, e Event) error

func (s *Shop) messages() {
	register(s, call{
		id: "list-dead-letters", method: http.MethodGet, path: "/dead-letters", tag: "messages", summary: "Look at the latest messages that were given up",
	}, s.listDeadLetters)
	if s.o.Broker == nil {
		return
	}
	s.loops = append(s.loops, s.relay, func(ctx context.Context) error {
		_, err := s.o.Broker.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: streamName, Subjects: []string{"order.*", "payment.*"}, MaxAge: streamKept})
		if err != nil {
			return fmt.Errorf("make the stream %s: %w", streamName, err)
		}
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return s.consume(ctx, "email", []string{"order.*", "payment.*"}, s.email) })
		g.Go(func() error { return s.consume(ctx, "invoice", []string{"payment.*"}, s.invoice) })
		return g.Wait()
	})
}

// consume handles the messages of some subjects until ctx ends. Instances share the messages of a name.
func (s *Shop) consume(ctx context.Context, name string, subjects []string, handle handler) error {
	c, err := consumer.New(s.guard.Route(semel.Policy{OneCommit: true, Lease: s.o.Lease}), name, consumer.Options{
		Retention:  streamKept + 24*time.Hour, // a message is remembered for longer than the stream has it
		KeepAlive:  s.o.Lease / 3,
		DeadLetter: func(ctx context.Context, m consumer.Message, reason error) error { return s.bury(ctx, name, m, reason) },
	})
	if err != nil {
		return err
	}
	from, err := s.o.Broker.CreateOrUpdateConsumer(ctx, streamName, jetstream.ConsumerConfig{
		Durable: name, FilterSubjects: subjects, AckPolicy: jetstream.AckExplicitPolicy, AckWait: s.o.Lease,
		MaxDeliver: -1, // it is the consumer that gives up, and says so
	})
	if err != nil {
		return fmt.Errorf("consume as %s: %w", name, err)
	}
	running := context.WithoutCancel(ctx)
	consuming, err := from.Consume(func(msg jetstream.Msg) {
		r := s.db.Inbox(running, c, received(msg), func(ctx context.Context, tx database.Tx, m consumer.Message) error {
			e, err := readEvent(m)
			if err == nil {
				err = handle(ctx, tx, m, e)
			}
			s.crash("messages." + name + ".handled")
			return err
		})
		if r.Err != nil {
			s.o.Log.WarnContext(ctx, "a message was not handled", "error", r.Err)
		}
		s.crash("messages." + name + ".committed")
		// What the server does not hear is another delivery.
		switch r.Action {
		case consumer.Ack:
			msg.Ack() //nolint:errcheck // see above
		case consumer.Nack:
			msg.NakWithDelay(r.Delay) //nolint:errcheck // see above
		case consumer.Term:
			msg.Term() //nolint:errcheck // see above
		}
	}, jetstream.PullMaxMessages(32))
	if err != nil {
		return fmt.Errorf("consume as %s: %w", name, err)
	}
	<-ctx.Done()
	consuming.Stop()
	<-consuming.Closed()
	return nil
}

// received returns a delivery of NATS in the form of package consumer.
func received(msg jetstream.Msg) consumer.Message {
	m := consumer.Message{
		ID: msg.Headers().Get(jetstream.MsgIDHeader), Topic: msg.Subject(), Payload: msg.Data(), Headers: map[string]string{}, KeepAlive: msg.InProgress,
	}
	for name := range msg.Headers() {
		m.Headers[name] = msg.Headers().Get(name)
	}
	if about, err := msg.Metadata(); err == nil {
		m.Deliveries = int(about.NumDelivered)
	}
	return m
}

// readEvent reads what a message tells. An error is final: the message is the same at its next delivery.
func readEvent(m consumer.Message) (Event, error) {
	var e Event
	decoder := json.NewDecoder(bytes.NewReader(m.Payload))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&e)
	switch {
	case err != nil:
	case uuid.Validate(m.ID) != nil:
		err = errors.New("its id is not a UUID")
	case e.Type != m.Topic || e.Tenant == "" || e.ID == "":
		err = errors.New("the type is not the subject, or the tenant or the id is missing")
	}
	if err != nil {
		return e, semel.Final(fmt.Errorf("read the event: %w", err))
	}
	return e, nil
}

// email writes to the customer. No transaction can take a mail back. So it is a file that the message's id names: if it
// is written again after a crash, it is still one.
func (s *Shop) email(ctx context.Context, tx database.Tx, m consumer.Message, e Event) error {
	subject := map[string]string{
		OrderPlaced: "Your order", PaymentCompleted: "Your payment", PaymentRefunded: "Your refund",
	}[e.Type]
	if subject == "" {
		return semel.Final(fmt.Errorf("there is no mail for %s", e.Type))
	}
	to := e.User + "@" + e.Tenant + ".example"
	_, err := tx.Exec(ctx, "INSERT INTO emails (message, tenant, recipient, subject, sent) VALUES ($1, $2, $3, $4, $5)", m.ID, e.Tenant, to, subject, now().UnixMilli())
	if err != nil {
		return fmt.Errorf("insert the mail: %w", err)
	}
	if s.o.Mail == "" {
		return nil
	}
	text := fmt.Sprintf("Message-ID: <%s@shop.example>\nTo: %s\nSubject: %s\n\n%s: %d %s, in minor units\n", m.ID, to, subject, e.ID, e.Amount, e.Currency)
	if err := os.WriteFile(filepath.Join(s.o.Mail, m.ID+".eml"), []byte(text), 0o600); err != nil {
		return fmt.Errorf("send the mail: %w", err)
	}
	return nil
}

// invoice issues invoices, whose numbers have no gaps: a number is taken in the transaction of its invoice.
func (s *Shop) invoice(ctx context.Context, tx database.Tx, m consumer.Message, e Event) error {
	amount := e.Amount
	switch e.Type {
	case PaymentCompleted:
	case PaymentRefunded:
		amount = -amount
	default:
		return semel.Final(fmt.Errorf("there is no invoice for %s", e.Type))
	}
	var number int64
	err := tx.QueryRow(ctx, "SELECT number FROM invoices WHERE message = $1", m.ID).Scan(&number)
	if err == nil {
		return nil // the message was handled, and that was forgotten
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("look for the invoice: %w", err)
	}
	err = tx.QueryRow(ctx, "INSERT INTO invoice_numbers (tenant, last) VALUES ($1, 1) ON CONFLICT (tenant) DO UPDATE SET last = invoice_numbers.last + 1 RETURNING last", e.Tenant).Scan(&number)
	if err != nil {
		return fmt.Errorf("take an invoice's number: %w", err)
	}
	_, err = tx.Exec(ctx, "INSERT INTO invoices (tenant, number, message, payment, amount, currency, issued) VALUES ($1, $2, $3, $4, $5, $6, $7)",
		e.Tenant, number, m.ID, e.ID, amount, e.Currency, now().UnixMilli())
	if err != nil {
		return fmt.Errorf("insert the invoice: %w", err)
	}
	return nil
}

// bury keeps a message that is given up.
func (s *Shop) bury(ctx context.Context, name string, m consumer.Message, reason error) error {
	letter := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", name, m.ID, m.Payload))
	payload := strings.ReplaceAll(strings.ToValidUTF8(string(m.Payload), "\uFFFD"), "\x00", "\uFFFD")
	_, err := s.db.Exec(ctx, "INSERT INTO dead_letters (letter, consumer, message, topic, tenant, payload, reason, at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (letter) DO NOTHING",
		hex.EncodeToString(letter[:]), name, m.ID, m.Topic, m.Headers["Tenant"], payload, reason.Error(), now().UnixMilli())
	if err != nil {
		return fmt.Errorf("insert the dead letter: %w", err)
	}
	return nil
}

// DeadLetter is a message that a consumer has given up.
type DeadLetter struct {
	Consumer string    `json:"consumer" example:"invoice"`
	Message  string    `json:"message" doc:"The message's id"`
	Topic    string    `json:"topic" example:"payment.completed"`
	Payload  string    `json:"payload"`
	Reason   string    `json:"reason"`
	At       time.Time `json:"at"`
}

type deadLetters struct {
	Body struct {
		Letters []DeadLetter `json:"letters"`
	}
}

func (s *Shop) listDeadLetters(ctx context.Context, _ *struct{}) (*deadLetters, error) {
	rows, err := s.db.Query(ctx, "SELECT consumer, message, topic, payload, reason, at FROM dead_letters WHERE tenant = $1 ORDER BY at DESC, letter LIMIT 100", principal(ctx).Tenant)
	if err != nil {
		return nil, fmt.Errorf("list the dead letters: %w", err)
	}
	defer rows.Close()
	var out deadLetters
	out.Body.Letters = []DeadLetter{}
	for rows.Next() {
		var (
			l  DeadLetter
			at int64
		)
		if err := rows.Scan(&l.Consumer, &l.Message, &l.Topic, &l.Payload, &l.Reason, &at); err != nil {
			return nil, fmt.Errorf("list the dead letters: %w", err)
		}
		l.At = time.UnixMilli(at).UTC()
		out.Body.Letters = append(out.Body.Letters, l)
	}
	return &out, rows.Err()
}
