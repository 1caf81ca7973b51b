// Package naive is a shop as many are, to compare with. It is no caricature: it checks what it is sent, writes in transactions,
// and answers when all is written. It does what it is asked each time it is asked: nothing tells it that a request or a message
// is a repeat, or that an order has changed since it was read. It uses the same card processor, broker and kind of database.
package naive

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	_ "modernc.org/sqlite" // the driver of the database
)

// Subject is that of the messages that a payment has completed.
const Subject = "naive.payment.completed"

// Stream is the name of the stream that has them.
const Stream = "naive"

const schema = `
CREATE TABLE IF NOT EXISTS orders   (id TEXT PRIMARY KEY, quantity INTEGER NOT NULL, note TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS payments (id TEXT PRIMARY KEY, card TEXT NOT NULL, amount INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS emails   (payment TEXT NOT NULL);
`

// Options are what the shop is made of.
type Options struct {
	Database  string // path of a file of its own
	Processor string // URL of the card processor
	Broker    jetstream.JetStream
	Crash     func() // is called when a card was charged, and may end the process; may be nil
}

// Shop is the shop.
type Shop struct {
	http.Handler
	DB *sql.DB
	o  Options
}

// An Order is what customers edit.
type Order struct {
	ID       string `json:"id"`
	Quantity int64  `json:"quantity"`
	Note     string `json:"note"`
}

// A Payment is what customers pay.
type Payment struct {
	ID       string `json:"id"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Card     string `json:"card"`
}

// Open opens the shop. Its caller closes DB.
func Open(ctx context.Context, o Options) (*Shop, error) {
	path, err := filepath.Abs(o.Database)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate")
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, fmt.Errorf("open the database: %w", errors.Join(err, db.Close()))
	}
	s := &Shop{DB: db, o: o}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /payments", s.pay)
	mux.HandleFunc("POST /orders", s.order)
	mux.HandleFunc("GET /orders/{id}", s.get)
	mux.HandleFunc("PUT /orders/{id}", s.put)
	s.Handler = mux
	return s, nil
}

// Serve opens the shop and serves it at any port until ctx ends. It prints where.
func Serve(ctx context.Context, broker string, o Options, out io.Writer) error {
	conn, err := nats.Connect(broker)
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	defer conn.Close()
	if o.Broker, err = jetstream.New(conn); err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	s, err := Open(ctx, o)
	if err != nil {
		return err
	}
	defer s.DB.Close() //nolint:errcheck // the process ends
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { server.Close() }) //nolint:errcheck // the process ends
	fmt.Fprintf(out, "serving at http://%s\n", l.Addr())
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// pay charges the card, writes the payment, and tells others.
func (s *Shop) pay(w http.ResponseWriter, r *http.Request) {
	var p Payment
	if !read(w, r, &p) {
		return
	}
	if p.Amount <= 0 || p.Card == "" {
		http.Error(w, "amount and card are required", http.StatusBadRequest)
		return
	}
	status, err := s.charge(r.Context(), p)
	if err != nil || status != http.StatusCreated {
		http.Error(w, fmt.Sprintf("the card was not charged: %d %v", status, err), http.StatusBadGateway)
		return
	}
	if s.o.Crash != nil {
		s.o.Crash()
	}
	p.ID = uuid.NewString()
	// What was charged is to be written, also if the client has gone.
	ctx := context.WithoutCancel(r.Context())
	if _, err := s.DB.ExecContext(ctx, "INSERT INTO payments (id, card, amount) VALUES ($1, $2, $3)", p.ID, p.Card, p.Amount); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if _, err := s.o.Broker.Publish(ctx, Subject, []byte(p.ID)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, http.StatusCreated, p)
}

func (s *Shop) charge(ctx context.Context, p Payment) (status int, err error) {
	body, err := json.Marshal(map[string]any{"amount": p.Amount, "currency": p.Currency, "card": p.Card})
	if err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, s.o.Processor+"/charges", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := (&http.Client{Timeout: 30 * time.Second}).Do(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

func (s *Shop) order(w http.ResponseWriter, r *http.Request) {
	var o Order
	if !read(w, r, &o) {
		return
	}
	o.ID = uuid.NewString()
	if _, err := s.DB.ExecContext(r.Context(), "INSERT INTO orders (id, quantity, note) VALUES ($1, $2, $3)", o.ID, o.Quantity, o.Note); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, http.StatusCreated, o)
}

func (s *Shop) get(w http.ResponseWriter, r *http.Request) {
	o := Order{ID: r.PathValue("id")}
	err := s.DB.QueryRowContext(r.Context(), "SELECT quantity, note FROM orders WHERE id = $1", o.ID).Scan(&o.Quantity, &o.Note)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		http.NotFound(w, r)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		write(w, http.StatusOK, o)
	}
}

// put writes the order as its editor wants it.
func (s *Shop) put(w http.ResponseWriter, r *http.Request) {
	var o Order
	if !read(w, r, &o) {
		return
	}
	o.ID = r.PathValue("id")
	if _, err := s.DB.ExecContext(r.Context(), "UPDATE orders SET quantity = $1, note = $2 WHERE id = $3", o.Quantity, o.Note, o.ID); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, http.StatusOK, o)
}

// Consume mails to customers until ctx ends. It acknowledges a message when the mail is written.
func (s *Shop) Consume(ctx context.Context) error {
	_, err := s.o.Broker.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: Stream, Subjects: []string{Subject}})
	if err != nil {
		return fmt.Errorf("make the stream: %w", err)
	}
	c, err := s.o.Broker.CreateOrUpdateConsumer(ctx, Stream, jetstream.ConsumerConfig{Durable: "email", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		return fmt.Errorf("make the consumer: %w", err)
	}
	consuming, err := c.Consume(func(m jetstream.Msg) {
		if _, err := s.DB.ExecContext(context.WithoutCancel(ctx), "INSERT INTO emails (payment) VALUES ($1)", string(m.Data())); err != nil {
			m.Nak() //nolint:errcheck // what the server does not hear is another delivery
			return
		}
		m.Ack() //nolint:errcheck // what the server does not hear is another delivery
	})
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	<-ctx.Done()
	consuming.Stop()
	<-consuming.Closed()
	return nil
}

func read(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(into); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) //nolint:errcheck // the client has gone
}
