package run_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

func (w *world) notes(runID string) string {
	w.t.Helper()
	rows, err := w.st.Read().RunNotes(ctx, runID)
	if err != nil {
		w.t.Fatalf("read notes: %v", err)
	}
	var parts []string
	for _, n := range rows {
		parts = append(parts, n.Kind+" by "+n.Actor)
	}
	return strings.Join(parts, ", ")
}

func TestNotesTellWhatTheRowsDoNot(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("a")))
		a := w.job(id, "a")
		_, attempt := w.assign(a.ID)
		w.try(func(tx *store.Tx) (bool, error) { return w.s.Requeue(tx, a.ID, attempt, "not_acked", true) })
		agent, attempt := w.assign(a.ID)
		w.started(a.ID, agent, attempt)
		w.try(func(tx *store.Tx) (bool, error) { return w.s.Recover(tx, a.ID, attempt, tx.Now()+60_000) })
		w.try(func(tx *store.Tx) (bool, error) { return w.s.Recovered(tx, a.ID, attempt, agent) })
		for _, force := range []bool{false, false, true, true} {
			if _, err := w.s.Cancel(ctx, run.CancelRequest{OrgID: "acme", RunID: id, By: "ann", Force: force}); err != nil {
				t.Fatal(err)
			}
		}
		want := "requeued by kici, link_lost by kici, link_back by " + agent + ", cancel_asked by ann, cancel_forced by ann"
		if got := w.notes(id); got != want {
			t.Fatalf("notes\n got %s\nwant %s", got, want)
		}
		rows, _ := w.st.Read().RunNotes(ctx, id)
		for _, n := range rows {
			if n.Detail == "" || strings.HasPrefix(n.Kind, "link") && n.JobID != a.ID {
				t.Errorf("note %+v", n)
			}
		}
	})
}

// A run has a bounded number of notes, and the last one says that more is missing.
func TestNotesAreBounded(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("a")))
		a := w.job(id, "a")
		agent, attempt := w.assign(a.ID)
		w.started(a.ID, agent, attempt)
		w.write(func(tx *store.Tx) error {
			for i := range 1999 {
				_, err := tx.InsertRunNote(ctx, db.InsertRunNoteParams{
					RunID: id, ID: fmt.Sprint(i), At: 1, Kind: ci.NoteHeld, Actor: "kici", MaxNotes: 2000,
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		for range 3 {
			w.try(func(tx *store.Tx) (bool, error) { return w.s.Recover(tx, a.ID, attempt, tx.Now()+60_000) })
			w.try(func(tx *store.Tx) (bool, error) { return w.s.Recovered(tx, a.ID, attempt, agent) })
		}
		rows, err := w.st.Read().RunNotes(ctx, id)
		if err != nil || len(rows) != 2001 {
			t.Fatalf("%d notes, %v; want 2000 and the last", len(rows), err)
		}
		if last := rows[2000]; last.Kind != ci.NoteDropped || !strings.Contains(last.Detail, "2000") {
			t.Fatalf("last note %+v", last)
		}
	})
}
