package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/pause"
)

const (
	// scanStep is how many keys one step of a scan looks at, about: half as many as a listing's, since it never ends.
	scanStep = 32
	// scanPause is how long the server is left alone between two steps of a scan, at least. A step that took longer is
	// followed by as long a pause.
	scanPause = 2 * time.Millisecond
	// scanEvery is the time from the beginning of one round through a node to that of the next, at least.
	scanEvery = time.Second
	// scanTurn is how long a node is looked through before it is another's turn, and before the state is saved.
	scanTurn = 5 * time.Second
	// scanLease is how long a scanner that is not heard of keeps others from scanning.
	scanLease = 3 * scanTurn
	// scanKept is how long a state is kept of a node that does not come again.
	scanKept = 24 * time.Hour
)

// Scan implements [driver.Scanner]. It goes through the keys of all nodes, 32 at a time and no more than about 15 000 a
// second, and through the nodes in turn. It sees the names of the keys of others, and reads none of them. Of what waits
// it keeps the ids in the set Prefix + "waiting". Where it is on a node it keeps in Prefix + "scan:" and the run id of
// that node's server, since another server, or the same one after a restart, does not know the cursor: there it begins
// anew. Who scans is noted in Prefix + "scanner", for 15 seconds at a time. What it counts, [Store.Count] tells. In a
// Cluster it needs a client that is a [NodeVisitor].
func (s *Store) Scan(ctx context.Context) error {
	sc := &scan{Store: s, token: driver.NewToken().String(), rounds: map[string]*scanRound{}}
	defer sc.leave(ctx)
	for {
		rest := scanTurn/2 + rand.N(scanTurn/2)
		mine, err := sc.hold(ctx)
		if err == nil && mine {
			rest, err = sc.turns(ctx)
		}
		if err == nil && !pause.For(ctx, rest) {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("redisstore: scan: %w", err)
		}
	}
}

// A scan is one call of Scan.
type scan struct {
	*Store
	token  string
	mine   bool                  // as far as is known
	asked  time.Time             // when that was asked for last
	rounds map[string]*scanRound // by the run id of the node's server
}

// A scanRound is a scan's round through one node.
type scanRound struct {
	cursor string
	steps  int
	began  driver.Time // on the node's clock
	counts driver.Counts
	oldest driver.Time // the earliest start of what runs, 0 if nothing does

	whole driver.Counts // what the last whole round has counted
	of    int           // the steps of that round
	took  time.Duration // how long that took, 0 if there was none
	rests time.Time     // when the next one may begin
}

// hold makes this call the one that scans, or finds that it still is.
func (sc *scan) hold(ctx context.Context) (bool, error) {
	if sc.mine && time.Since(sc.asked) < scanTurn {
		return true, nil
	}
	sc.mine, sc.asked = false, time.Now()
	set, err := sc.say(ctx, "SET", "scanner", sc.token, "NX", "PX", millis(scanLease))
	switch {
	case err != nil:
		return false, err
	case set != nil:
		clear(sc.rounds) // others may have gone on since
	default:
		var holder any
		holder, err = sc.say(ctx, "GET", "scanner")
		if text, _ := textOf(holder); err != nil || text != sc.token {
			return false, err
		}
		// Another may have taken it just now. Then both scan until the next turn, at which one finds the other's token.
		_, err = sc.say(ctx, "SET", "scanner", sc.token, "XX", "PX", millis(scanLease))
	}
	sc.mine = err == nil
	return sc.mine, err
}

// leave lets another scan at once.
func (sc *scan) leave(ctx context.Context) {
	if !sc.mine {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if holder, err := sc.say(ctx, "GET", "scanner"); err == nil && holder != nil {
		if text, _ := textOf(holder); text == sc.token {
			sc.say(ctx, "DEL", "scanner") //nolint:errcheck // it ends by itself
		}
	}
}

// turns gives each node its turn, and returns how long all rest then.
func (sc *scan) turns(ctx context.Context) (rest time.Duration, err error) {
	seen := map[string]bool{}
	ended := false
	err = sc.eachNode(ctx, func(ctx context.Context, node Client) error {
		server, err := runID(ctx, node)
		if err != nil {
			return err
		}
		seen[server] = true
		r, err := sc.roundOf(ctx, server)
		if err != nil {
			return err
		}
		whole, err := sc.turn(ctx, node, server, r)
		ended = ended || whole
		return err
	})
	if err != nil {
		return 0, err
	}
	rest = scanEvery
	var took time.Duration
	for server, r := range sc.rounds {
		if !seen[server] {
			delete(sc.rounds, server)
			continue
		}
		rest = min(rest, max(0, time.Until(r.rests)))
		if r.took == 0 {
			ended = false // not all that there is has been counted
		}
		took = max(took, r.took)
	}
	if ended {
		sc.tell(ctx, took)
	}
	return rest, nil
}

// runID returns what tells the server of a node from all others, and from itself after a restart; "" if it does not
// say.
func runID(ctx context.Context, node Client) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	got, err := node.Do(ctx, "", "INFO", "server")
	if err = interpretError(err); errors.Is(err, ErrDenied) {
		return "", nil
	}
	text, _ := textOf(got)
	return parseInfo(text)["run_id"], err
}

// roundOf returns the round through a node where it was left, by whomever.
func (sc *scan) roundOf(ctx context.Context, server string) (*scanRound, error) {
	if r := sc.rounds[server]; r != nil && server != "" {
		return r, nil
	}
	r := &scanRound{cursor: "0"}
	sc.rounds[server] = r
	if server == "" {
		return r, nil
	}
	got, err := sc.say(ctx, "GET", "scan:"+server)
	if text, ok := textOf(got); ok {
		var was scanRound
		if _, err := fmt.Sscan(text, &was.cursor, &was.steps, &was.began, &was.counts.Records, &was.counts.Running, &was.counts.Unknown, &was.oldest); err == nil {
			*r = was
		}
	}
	return r, err
}

// save notes where the round through a node is, also if ctx has ended.
func (sc *scan) save(ctx context.Context, server string, r *scanRound) error {
	if server == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, err := sc.say(ctx, "SET", "scan:"+server, fmt.Sprint(r.cursor, " ", r.steps, " ", int64(r.began), " ", r.counts.Records, " ",
		r.counts.Running, " ", r.counts.Unknown, " ", int64(r.oldest)), "PX", millis(scanKept))
	return err
}

// turn goes on with the round through a node until the turn is over, or the round. It reports whether it was the round.
// Of a node that can't be told from others the round has no end before all keys were seen.
func (sc *scan) turn(ctx context.Context, node Client, server string, r *scanRound) (whole bool, err error) {
	if time.Now().Before(r.rests) {
		return false, nil
	}
	defer func() { err = errors.Join(err, sc.save(ctx, server, r)) }()
	pattern := sc.pattern(&driver.Query{})
	for since := time.Now(); server == "" || time.Since(since) < scanTurn; {
		if mine, err := sc.hold(ctx); err != nil || !mine {
			return false, err
		}
		began := time.Now()
		p, err := sc.page(ctx, node, r.cursor, pattern, scanStep, []any{"waiting"})
		if err == nil {
			err = sc.note(ctx, p.ids)
		}
		if err != nil {
			return false, err
		}
		if r.add(p) {
			r.rests = time.Now().Add(scanEvery - r.took)
			return true, nil
		}
		if !pause.For(ctx, max(scanPause, time.Since(began))) {
			return false, ctx.Err()
		}
	}
	return false, nil
}

// add adds what a step has found. It reports whether that was the last one of its round.
func (r *scanRound) add(p *page) (whole bool) {
	if r.began == 0 {
		r.began = p.now
	}
	r.steps++
	p.addTo(&r.counts)
	if p.oldest > 0 && (r.oldest == 0 || p.oldest < r.oldest) {
		r.oldest = p.oldest
	}
	r.cursor = p.next
	if r.cursor != "0" {
		return false
	}
	r.whole = r.counts
	if r.oldest > 0 {
		r.whole.OldestRunning = max(0, p.now.Sub(r.oldest))
	}
	r.of, r.took = r.steps, max(1, p.now.Sub(r.began))
	r.steps, r.began, r.counts, r.oldest = 0, 0, driver.Counts{}, 0
	return true
}

// note adds operations to those that wait.
func (sc *scan) note(ctx context.Context, ids []driver.ID) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := sc.say(ctx, "SADD", "waiting", membersOf(ids)...)
	return err
}

// tell shares what the last rounds through all nodes have counted, unless a count by oneself is as quick. While it is
// scanned nobody else has to count.
func (sc *scan) tell(ctx context.Context, took time.Duration) {
	var n driver.Counts
	steps := 0
	for _, r := range sc.rounds {
		steps += r.of
		n.Records += r.whole.Records
		n.Running += r.whole.Running
		n.Unknown += r.whole.Unknown
		n.OldestRunning = max(n.OldestRunning, r.whole.OldestRunning)
	}
	if steps*scanStep > countAlone {
		sc.share(ctx, n, took, 3*took+scanLease)
	}
}

func membersOf(ids []driver.ID) []any {
	members := make([]any, len(ids))
	for i, id := range ids {
		members[i] = string(id[:])
	}
	return members
}

// waits reports whether a query is for what a scan looks for.
func waits(q *driver.Query) bool {
	return q.Reading == driver.ReadsUnknown || q.Reading == driver.ReadsFree && q.Sealed
}

// eachWaiting calls visit with those that wait and may match, as far as a scan has come by them. Those that wait no
// more it takes out of the set; the next scan finds them should they wait again.
func (s *Store) eachWaiting(ctx context.Context, q driver.Query, visit func(ids []driver.ID) error) error {
	for cursor := "0"; ; {
		got, err := s.say(ctx, "SSCAN", "waiting", cursor, "COUNT", "512")
		if err != nil {
			return err
		}
		next, members, ok := scanReply(got)
		if !ok {
			return fmt.Errorf("SSCAN replied a %T", got)
		}
		ids := make([]driver.ID, 0, len(members))
		for _, m := range members {
			if len(m) == len(driver.ID{}) {
				ids = append(ids, driver.ID([]byte(m)))
			}
		}
		match, over, err := s.lookAt(ctx, q, ids)
		if err == nil && len(over) > 0 {
			_, err = s.say(ctx, "SREM", "waiting", membersOf(over)...)
		}
		if err == nil {
			err = visit(match)
		}
		if err != nil {
			return err
		}
		if cursor = next; cursor == "0" {
			return nil
		}
	}
}

// lookAt looks at the heads of records: which may match, and which wait no more. One that can't be read may match.
func (s *Store) lookAt(ctx context.Context, q driver.Query, ids []driver.ID) (match, over []driver.ID, err error) {
	if len(ids) == 0 {
		return nil, nil, nil
	}
	now, err := timeOf(ctx, s.client)
	if err != nil {
		return nil, nil, err
	}
	errs, heads := make([]error, len(ids)), make([]string, len(ids))
	each(len(ids), func(i int) { heads[i], errs[i] = headOf(ctx, s.client, s.key(ids[i])) })
	for i, id := range ids {
		rec, err := readHead(heads[i])
		switch {
		case errs[i] != nil && !strings.Contains(errs[i].Error(), "WRONGTYPE"):
			return nil, nil, errs[i]
		case errs[i] != nil || err != nil:
			match = append(match, id)
			continue
		}
		sealed := rec.State != driver.Absent && partSize(heads[i], partSealed) > 0
		rec.Now = now
		switch {
		case rec.State == driver.Absent || rec.State == driver.Done || rec.State == driver.Free && !sealed:
			over = append(over, id)
		case (sealed || !q.Sealed) && q.Reading == rec.Reads(rec.OnLost):
			match = append(match, id)
		}
	}
	return match, over, nil
}

func scanReply(v any) (next string, members []string, ok bool) {
	pair, ok := v.([]any)
	if !ok || len(pair) != 2 {
		return "", nil, false
	}
	next, ok1 := textOf(pair[0])
	list, ok2 := pair[1].([]any)
	for _, v := range list {
		member, _ := textOf(v)
		members = append(members, member)
	}
	return next, members, ok1 && ok2
}
