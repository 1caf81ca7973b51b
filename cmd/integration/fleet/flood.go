package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Flood is what one principal does to a gateway while another one asks, as that did before, alone.
type Flood struct {
	Attack   string        // one of Attacks
	Store    string        // one of Stores
	Hangups  int           // claims that are given up, by hangups and all
	Keys     int           // that are used once, by keys and all
	Peers    int           // slow connections, by bodies and readers, and by all of each sort
	Rate     int           // of hang-ups and of keys, a second; 0 for as many as 64 connections allow
	Alone    time.Duration // for which the other principal asks before
	Duration time.Duration // for which slow peers are kept up; by all as long as there are hang-ups and keys, if that is longer
	FailOpen bool          // the route fails open
	Dir      string
}

// A FloodReport is what came of a Flood.
type FloodReport struct {
	Attack   string
	Store    string
	FailOpen bool

	// Of the other principal.
	Alone      Latency
	Served     Latency        // with hangups: while as many requests of the first principal were answered, as fast as that goes
	During     Latency        // while it attacked
	Refused    map[string]int // answers other than 201, by status and code, and connections that broke
	Bypassed   int            // answers that were marked as unprotected
	Duplicates int            // effects more than one for a key, whosever it was

	// Of the first principal: what became of its connections and requests.
	Outcomes map[string]int

	// Of the gateway's process. Memory is in bytes, and 0 where the system does not tell.
	MemoryBefore int64 // resident, before the attack
	MemoryPeak   int64 // the most that was resident
	MemoryAfter  int64 // resident, at the attack's end
	OpenFiles    int   // the most, connections included
	Disk         int64 // bytes of the folder, log and SQLite file included, at the attack's end

	Took time.Duration // the attack
}

// A Latency is how long requests took.
type Latency struct {
	Requests      int
	P50, P99, Max time.Duration
}

const floodAccount, otherAccount = "mallory", "alice"

// Run floods a gateway. Whatever it starts has ended when it returns.
func (f Flood) Run(ctx context.Context) (report *FloodReport, err error) {
	attacks := f.attacks()
	if len(attacks) == 0 {
		return nil, fmt.Errorf("unknown attack %q", f.Attack)
	}
	service, err := NewService()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	storage, err := NewStorage(f.Store, f.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, storage.Close()) }()
	policy := fmt.Sprintf("fail_open: %t, max_response_body: %d", f.FailOpen, keptAnswer)
	g, err := NewGateway("gateway", f.Dir, service, storage, "header:X-Account", policy)
	if err == nil {
		err = g.Start(ctx)
	}
	if err != nil {
		return nil, err
	}
	defer g.Kill() //nolint:errcheck // it has nothing to lose

	r := &FloodReport{Attack: f.Attack, Store: f.Store, FailOpen: f.FailOpen}
	o := newOther(g.URL)
	defer o.close()
	a := &attacker{Flood: f, address: strings.TrimPrefix(g.URL, "http://"), outcomes: map[string]int{}}
	alone, cancel := context.WithTimeout(ctx, f.Alone)
	r.Alone = o.ask(alone, "alone")
	cancel()
	if f.Attack == "hangups" {
		r.Served = o.beside(ctx, "served", a.served)
	}
	a.outcomes = map[string]int{}
	watch := g.watch()
	r.MemoryBefore = watch.now()
	began := time.Now()
	r.During = o.beside(ctx, "flood", func(ctx context.Context) { a.attack(ctx, attacks) })
	r.Took = time.Since(began)
	r.MemoryAfter = watch.now()
	r.MemoryPeak, r.OpenFiles = watch.end()
	r.Outcomes, r.Refused, r.Bypassed = a.outcomes, o.refused, o.bypassed
	if r.Disk, err = size(f.Dir); err != nil {
		return nil, err
	}
	if err := g.Stop(); err != nil { // no effect is under way when they are counted
		return nil, err
	}
	for _, n := range service.Effects() {
		r.Duplicates += max(0, n-1)
	}
	return r, ctx.Err()
}

// size returns how many bytes the files below a folder have.
func size(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("measure a folder: %w", err)
	}
	return sum, nil
}

// A processWatch follows what a process takes.
type processWatch struct {
	dir   string // of the process, in /proc
	stop  chan struct{}
	ended sync.WaitGroup
	files int
}

func (g *Gateway) watch() *processWatch {
	w := &processWatch{dir: "/proc/" + strconv.Itoa(g.cmd.Process.Pid), stop: make(chan struct{})}
	w.ended.Go(func() {
		for {
			open, _ := os.ReadDir(w.dir + "/fd") // there are none where the system does not tell
			w.files = max(w.files, len(open))
			select {
			case <-time.After(200 * time.Millisecond):
			case <-w.stop:
				return
			}
		}
	})
	return w
}

// now returns how much memory is resident.
func (w *processWatch) now() int64 { return w.status("VmRSS") }

// end returns the most that was resident, and the most files that were open.
func (w *processWatch) end() (peak int64, files int) {
	close(w.stop)
	w.ended.Wait()
	return w.status("VmHWM"), w.files
}

// status reads a number of bytes of /proc/PID/status.
func (w *processWatch) status(name string) int64 {
	text, _ := os.ReadFile(w.dir + "/status") // as above
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib << 10
		}
	}
	return 0
}

// Err says what is wrong for the other principal, or nil. Times are not judged.
func (r *FloodReport) Err() error {
	var errs []error
	for _, what := range slices.Sorted(maps.Keys(r.Refused)) {
		errs = append(errs, fmt.Errorf("%d requests of another principal were refused: %s", r.Refused[what], what))
	}
	if r.Bypassed > 0 {
		errs = append(errs, fmt.Errorf("%d requests ran unprotected", r.Bypassed))
	}
	if r.Duplicates > 0 {
		errs = append(errs, fmt.Errorf("%d effects were duplicates", r.Duplicates))
	}
	if r.Alone.Requests == 0 || r.During.Requests == 0 || r.Attack == "hangups" && r.Served.Requests == 0 {
		errs = append(errs, errors.New("the other principal has asked nothing"))
	}
	tried, failed := 0, 0
	for what, n := range r.Outcomes {
		tried += n
		if strings.HasSuffix(what, notConnected) {
			failed += n
		}
	}
	if failed > tried/100 {
		errs = append(errs, fmt.Errorf("%d of %d sockets could not be opened", failed, tried))
	}
	return errors.Join(errs...)
}
