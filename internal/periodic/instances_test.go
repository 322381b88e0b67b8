package periodic

import (
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// A server that has not run for a week goes, with its scalers and the agents that it alone could have ended; one with an agent
// that works elsewhere stays (CLU-7).
func TestDeadServersGo(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ago := func(tx *store.Tx, d time.Duration) int64 { return tx.Now() - d.Milliseconds() }
		w.Write(func(tx *store.Tx) error {
			ctx := t.Context()
			for id, heard := range map[string]time.Duration{
				"lost-now": 6 * day, "lost-long": 8 * day, "lives": 0, "stopped-now": 300 * day, "stopped-long": 300 * day, readtest.Node: 8 * day,
			} {
				if err := tx.StartInstance(ctx, db.StartInstanceParams{InstanceID: id, Name: id, Now: ago(tx, heard)}); err != nil {
					return err
				}
				if err := tx.NodePutScaler(ctx, db.NodePutScalerParams{NodeID: id, Name: "local", Type: "bare-metal", Spec: "{}", Ready: true, Now: tx.Now()}); err != nil {
					return err
				}
				if err := tx.NodeSetBackoff(ctx, db.NodeSetBackoffParams{NodeID: id, Scaler: "local", Now: tx.Now()}); err != nil {
					return err
				}
			}
			for id, at := range map[string]time.Duration{"stopped-now": day, "stopped-long": 8 * day} {
				if n, err := tx.StopInstance(ctx, ago(tx, at), id); err != nil || n != 1 {
					return errors.Join(err, errors.New("not stopped"))
				}
			}
			return tx.DispatchLaunch(ctx, db.DispatchLaunchParams{
				ID: "left", OrgID: readtest.Org, NodeID: "lost-long", Scaler: "local", Type: "bare-metal", Labels: `["linux"]`, MandatoryLabels: `[]`, Now: tx.Now(),
			})
		})
		run := w.Run(readtest.NewRun{})
		w.Agent("works", w.JobID(run, "build")) // of the node that is lost, and connected to another one
		w.Online("works")
		w.Assign(run, w.JobID(run, "build"), "works")
		r := w.retention()
		if _, err := r.instances(t.Context(), w.term-1); !errors.Is(err, store.ErrNotLeader) {
			t.Errorf("an old term: %v", err)
		}
		for _, want := range []int64{2, 0} {
			if n, err := r.instances(t.Context(), w.term); err != nil || n != want {
				t.Fatalf("%d %v, want %d", n, err, want)
			}
		}
		rows, err := w.st.Read().ClusterInstances(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, row := range rows {
			left = append(left, row.InstanceID)
		}
		if want := []string{"lives", "lost-now", readtest.Node, "stopped-now"}; !slices.Equal(left, want) {
			t.Errorf("%q, want %q", left, want)
		}
		for id, want := range map[string]int{"lost-long": 0, "lives": 1} {
			scalers, err := w.st.Read().NodeScalers(t.Context(), id)
			_, berr := w.st.Read().NodeBackoff(t.Context(), id, "local")
			if err != nil || len(scalers) != want || errors.Is(berr, sql.ErrNoRows) != (want == 0) {
				t.Errorf("%s: %v %v %v", id, scalers, berr, err)
			}
		}
		agents, err := w.st.Read().WholeAgents(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range agents {
			if want := map[string]string{"left": string(ci.AgentGone), "works": string(ci.AgentOnline)}[a.ID]; a.State != want {
				t.Errorf("%s is %s", a.ID, a.State)
			}
		}
	})
}
