package pgstore

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/driver"
)

// A seize that meets a decision about the record keeps what was decided: that its end is owed to somebody, and when.
func TestASeizeThatWaitedForASettleSeesWhatItWrote(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	id := newID()
	claim(t, s, id, ask(driver.Hold))
	seized, err := s.Seize(context.Background(), id, driver.NewToken())
	if err != nil {
		t.Fatal(err)
	}
	tx := begin(t, s, pgx.TxOptions{})
	by := seized.Owner()
	owed := txValue[bool](t, s, tx, "SELECT ({schema}.settle_1($1, $2, $3, false, 4::smallint, true, 0, '', NULL, false, false, false)).owed",
		id[:], int64(by.Fence), by.Token[:])
	if !owed {
		t.Fatal("the settle did not note that the end is owed")
	}
	again := make(chan driver.Record)
	token := driver.NewToken()
	go func() {
		defer close(again)
		rec, err := s.Seize(context.Background(), id, token)
		if err != nil {
			t.Errorf("seize: %v", err)
		}
		again <- rec
	}()
	waitsForLock(t, s, tx)
	settled := txValue[int64](t, s, tx, "SELECT settled FROM {schema}.records WHERE id = $1", id[:])
	if err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	rec := <-again
	if rec.Token != token || !rec.Seized || !rec.Owed || int64(rec.Settled) < settled {
		t.Errorf("seized %+v after a settle at %d that noted owed", rec, settled)
	}
}
