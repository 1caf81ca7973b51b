package chaos

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/semelhq/semel/refusal"
)

// testDisk returns a disk, or nil where none may be mounted: a run leaves it out then.
func testDisk(t *testing.T) *disk {
	t.Helper()
	d, err := newDisk(filepath.Join(t.TempDir(), "disk"))
	switch {
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported):
		t.Logf("no disk here: %v", err)
		return nil
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(d.dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it is still there: %v", err)
		}
	})
	return d
}

// What is on a full disk can be written over, and no more can be written; then it can again. What is kept outlives it.
func TestADiskIsFullForAWhile(t *testing.T) {
	t.Parallel()
	d := testDisk(t)
	if d == nil {
		return
	}
	f, err := os.Create(filepath.Join(d.dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, os.Getpagesize())
	write := func(at int) error {
		_, err := f.WriteAt(block, int64(at*len(block)))
		return err
	}
	if err := errors.Join(write(0), write(1)); err != nil {
		t.Fatal(err)
	}
	err = d.fill(1, func() {
		if err := errors.Join(write(1), write(2)); err != nil {
			t.Errorf("with room for a block: %v", err)
		}
		if err := write(3); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("without room: %v, want %v", err, syscall.ENOSPC)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := write(3); err != nil {
		t.Errorf("with room again: %v", err)
	}
	to := t.TempDir()
	if err := d.keep(to); err != nil {
		t.Fatal(err)
	}
	if kept, err := os.ReadFile(filepath.Join(to, "files", "file")); err != nil || len(kept) != 4*len(block) {
		t.Errorf("%d bytes were kept, want %d: %v", len(kept), 4*len(block), err)
	}
}

// While the disk is full the gateway runs nothing that it can't record, and still replays. What was under way is
// settled once there is room. No key is stuck.
func TestR63_R26_AFullDiskFailsClosed(t *testing.T) {
	t.Parallel()
	d := testDisk(t)
	if d == nil {
		return
	}
	file := filepath.Join(d.dir, "semel.db")
	s := newScene(t, Config{Mode: Hold, Fronts: 1, Clients: 1, Lease: 20 * time.Second, Store: "sqlite://" + file})
	at := s.cast.fronts[0].at()
	done := s.operation(payment{Order: "done", Amount: 7, Kind: plain})
	s.pursue(done)
	under := s.operation(payment{Order: "under-way", Amount: 7, Kind: plain, Takes: 500 * time.Millisecond})
	late := s.operation(payment{Order: "late", Amount: 7, Kind: plain})

	before := records(t, file)
	pursued := make(chan struct{})
	go func() {
		s.pursue(under)
		close(pursued)
	}()
	for records(t, file) == before && s.ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	full := trouble{what: string(DiskFull), from: time.Now(), full: true}
	err := d.fill(0, func() {
		if r, value := s.asking.ask(s.ctx, at, done.key, done.request); r != success || value != done.attempts[0].value {
			t.Errorf("a repeat: %v %s, want %s", r, value, done.attempts[0].value)
		}
		r, value := s.asking.ask(s.ctx, at, late.key, late.request)
		if r != later || !strings.HasPrefix(value, "503 ") || !strings.Contains(value, string(refusal.StoreUnavailable)) {
			t.Errorf("a new key: %v %s, want 503 %s", r, value, refusal.StoreUnavailable)
		}
		for s.ctx.Err() == nil && !took(t, &s.cfg, under) { // its settle finds no room
			time.Sleep(time.Millisecond)
		}
		if took(t, &s.cfg, late) {
			t.Error("what could not be recorded was run")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	full.to = time.Now()
	<-pursued
	s.pursue(under)
	s.pursue(late)
	if got := late.last(); got != success {
		t.Errorf("with room again: %v, want success", got)
	}
	effects, err := readLedger(s.cfg.ledger())
	if err != nil {
		t.Fatal(err)
	}
	j := judge{mode: Hold, began: s.began, troubles: []trouble{full}}
	for _, v := range j.all([]*operation{done, under, late}, effects) {
		t.Error(v)
	}
	if len(effects) != 3 {
		t.Errorf("%d effects, want 3", len(effects))
	}
}

// records returns how many there are.
func records(t *testing.T, file string) (n int) {
	t.Helper()
	db, err := openDatabase(file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow("SELECT count(*) FROM semel_records").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func took(t *testing.T, c *Config, o *operation) bool {
	t.Helper()
	effects, err := readLedger(c.ledger())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range effects {
		if e.Key == o.key {
			return true
		}
	}
	return false
}

// A run where the disk can't be had goes on without, and says why.
func TestWhatIsLeftOutIsSaid(t *testing.T) {
	t.Parallel()
	c := config(t, Config{Mode: Hold, Clients: 2, Fronts: 1, Operations: 20, hasty: true})
	if err := os.WriteFile(filepath.Join(c.Dir, "disk"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if why := r.LeftOut[DiskFull]; !strings.Contains(why, "exists") || r.Faults[DiskFull] > 0 || len(r.MissedFaults) > 0 {
		t.Errorf("left out: %q, with %d faults, missed %v", why, r.Faults[DiskFull], r.MissedFaults)
	}
	if r.Effects == 0 {
		t.Error("it did not go on")
	}
}
