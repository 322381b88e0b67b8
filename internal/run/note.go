package run

import (
	"fmt"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store/db"
)

// maxNotes bounds the notes of one run, which an outsider's flapping agent or adding steps can grow.
const maxNotes = 2000

// byKici is the actor of what the orchestrator does by itself.
const byKici = "kici"

// note records something that happened to the run, or to one of its jobs, and that its rows do not show by themselves; the
// timeline reads it. kind is one of ci.Note*, jobID is ” for the run, actor a person, an agent or kici (” is kici), detail a
// sentence of at most 1,000 bytes. It stands in the transaction of what it tells. Past maxNotes one last note says so.
func (l *life) note(kind, jobID, actor, detail string) error {
	if actor == "" {
		actor = byKici
	}
	rows, err := l.tx.InsertRunNote(l.ctx, db.InsertRunNoteParams{
		RunID: l.run.ID, ID: l.s.env.NewID(), At: l.now, JobID: jobID, Kind: kind, Actor: clip(actor, 200), Detail: clip(detail, 1000), MaxNotes: maxNotes,
	})
	if err != nil {
		return fmt.Errorf("note %s: %w", kind, err)
	}
	l.changed = true
	if rows > 0 {
		return nil
	}
	err = l.tx.InsertLastRunNote(l.ctx, db.InsertLastRunNoteParams{
		RunID: l.run.ID, At: l.now, Kind: ci.NoteDropped, Actor: byKici,
		Detail: fmt.Sprintf("this run has %d notes; more is not recorded", maxNotes),
	})
	if err != nil {
		return fmt.Errorf("note %s: %w", ci.NoteDropped, err)
	}
	return nil
}
