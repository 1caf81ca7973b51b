package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/examples/shop/shop"
	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/semeltest"
)

type pointsOf struct {
	Balance, Count int64
	Entries        []shop.Entry
	Next           string
}

func TestPointsAreTheSumOfDistinctRequests(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		const path = "/accounts/acc-1/points"
		hc := s.lossyClient(0.2)
		var (
			increments = proof.Of(200, 1000)
			all        errgroup.Group
			repeats    atomic.Int64
			want       int64
		)
		all.SetLimit(16)
		for i := range increments {
			amount := int64(1 + i%9)
			want += amount
			all.Go(func() error {
				for range 1 + i%2 { // a double click now and then
					a, err := client.Do(context.Background(), hc, client.Key{Value: fmt.Sprint("points-", i)}, s.request("POST", path, fmt.Sprintf(`{"amount":%d}`, amount)))
					if err != nil {
						return err
					}
					if a.Status != http.StatusCreated {
						return fmt.Errorf("%d %s", a.Status, a.Body)
					}
					repeats.Add(int64(a.Attempts) - 1)
				}
				return nil
			})
		}
		must(t, all.Wait())
		got := decode[pointsOf](t, s.expect(http.StatusOK, s.call(0, "GET", path, "", nil, nil)))
		if got.Balance != want || got.Count != int64(increments) || repeats.Load() == 0 {
			t.Fatalf("%d points in %d entries, want %d in %d; %d repeats", got.Balance, got.Count, want, increments, repeats.Load())
		}
	})
}

func TestPointsAreNeverBelowZero(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		const path = "/accounts/acc-2/points"
		key := s.newKey()
		p := s.expect(http.StatusConflict, s.call(0, "POST", path, key, shop.NewEntry{Amount: -1}, nil), "points_out_of_range")
		if !strings.Contains(p.String(), `"retryable":true`) {
			t.Fatal(p)
		}
		s.expect(http.StatusCreated, s.call(0, "POST", path, s.newKey(), shop.NewEntry{Amount: 5, Reason: "Welcome"}, nil))
		s.expect(http.StatusCreated, s.call(1, "POST", path, key, shop.NewEntry{Amount: -1}, nil))
		statuses := atOnce(t, 10, func(i int) (*reply, error) {
			return s.try(i, "POST", path, fmt.Sprint("spend-", i), shop.NewEntry{Amount: -1}, nil)
		})
		if statuses[http.StatusCreated] != 4 || statuses[http.StatusConflict] != 6 {
			t.Fatal(statuses)
		}
		// Entries are numbered without a gap, each with the balance after it, and listed page by page.
		var got []shop.Entry
		for next := "?limit=4"; next != ""; {
			r := s.expect(http.StatusOK, s.call(0, "GET", path+next, "", nil, nil))
			page := decode[pointsOf](t, r)
			got, next = append(got, page.Entries...), ""
			if page.Next != "" {
				next = "?limit=4&cursor=" + url.QueryEscape(page.Next)
				if link := r.Header.Get("Link"); link != "</api/v1"+path+next+`>; rel="next"` {
					t.Fatal(link)
				}
			}
		}
		for i, e := range got {
			if e.Number != int64(6-i) || e.Balance != int64(i) {
				t.Fatal(i, e)
			}
		}
		if len(got) != 6 || got[5].Reason != "Welcome" || got[5].Amount != 5 {
			t.Fatal(got)
		}
		if none := decode[pointsOf](t, s.call(0, "GET", "/accounts/nobody/points", "", nil, nil)); none.Balance != 0 || none.Entries == nil {
			t.Fatal(none)
		}
	})
}

// request makes a request, as alice of acme. It does not matter which instance it is for: see lossyClient.
func (s *stage) request(method, path, body string) *http.Request {
	r, err := http.NewRequestWithContext(context.Background(), method, s.urls[0]+"/api/v1"+path, strings.NewReader(body))
	must(s.t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", s.bearer("acme", "alice"))
	return r
}

// lossyClient returns a client that repeats requests whose answers were lost, and loses that share of them. Each
// attempt is for the next instance.
func (s *stage) lossyClient(share float64) *http.Client {
	s.t.Helper()
	lossy := semeltest.LosingTransport(&inTurn{urls: s.urls}, func(int) bool { return rand.Float64() < share })
	transport, err := client.New(lossy, client.Options{
		MaxAttempts: 20, Backoff: client.FullJitter(time.Millisecond, 20*time.Millisecond), Budget: client.Budget{Share: 1, Burst: 1000},
	})
	must(s.t, err)
	return &http.Client{Transport: transport}
}

// inTurn sends each request to the next of some servers.
type inTurn struct {
	urls []string
	n    atomic.Int64
}

func (i *inTurn) RoundTrip(r *http.Request) (*http.Response, error) {
	u, err := url.Parse(i.urls[int(i.n.Add(1))%len(i.urls)])
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL.Host, r.Host = u.Host, u.Host
	return http.DefaultTransport.RoundTrip(r)
}
