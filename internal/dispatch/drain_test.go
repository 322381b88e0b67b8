package dispatch

import (
	"testing"

	"github.com/kici-go/kici/internal/store"
)

// QUE-18: agents of a server that drains get nothing new, and get it again when it resumes.
func TestDrainingServerGetsNoWork(t *testing.T) {
	w := sqlite(t)
	w.static("box", "linux")
	drain := func(on bool) {
		t.Helper()
		w.write(func(tx *store.Tx) error {
			rows, err := tx.ClusterInstances(t.Context())
			for _, row := range rows {
				if _, derr := tx.SetInstanceDraining(t.Context(), on, row.InstanceID); derr != nil {
					return derr
				}
			}
			return err
		})
	}
	drain(true)
	id := w.insert(job("a", "linux"))
	w.place()
	if a := w.job(id, "a"); a.AgentID.Valid {
		t.Fatal("assigned although its server drains")
	}
	drain(false)
	w.place()
	if a := w.job(id, "a"); !a.AgentID.Valid {
		t.Fatal("not assigned after the server resumed")
	}
}
