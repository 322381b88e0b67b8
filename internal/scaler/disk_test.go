package scaler

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
)

func TestFullDisk(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		free int64
		was  bool
		want string
	}{
		{2 * gib, false, ""}, {gib, false, ""}, {gib - 1, false, "has 1024 MiB free"}, {gib + 1, true, "free"}, {gib + gib/10, true, ""}, {-1, false, "has 0 B free"},
	} {
		if got := fullDisk("/x", c.free, gib, c.was); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// A scaler whose disk is full starts nothing and says why; its agents go on, and when there is room again so does it.
func TestScalerWithoutDisk(t *testing.T) {
	r := newRig(t, storetest.SQLiteDatabase(t), oneScaler)
	free, failed := int64(10<<30), error(nil)
	r.host.Volume = "/agents"
	r.node.d.FreeDisk = func(folder string) (int64, error) {
		if folder != "/agents" {
			t.Errorf("looked at %s", folder)
		}
		return free, failed
	}
	r.request("a")
	r.tick()
	r.register("a")
	free = 100 << 20
	r.request("b")
	r.tick()
	r.want("a", "online")
	r.want("b", "gone/withdrawn")
	rows, err := r.st.Read().NodeScalers(t.Context(), nodeID)
	if err != nil || rows[0].Ready || !strings.Contains(rows[0].NotReady, "the disk of /agents has 100 MiB free, and minFreeDisk is 256 MiB") {
		t.Errorf("%+v %v", rows, err)
	}
	free, failed = 0, errors.New("no such folder") // what cannot be measured is no problem
	r.request("c")
	r.tick()
	r.want("c", "booting")
	if rows, _ := r.st.Read().NodeScalers(t.Context(), nodeID); !rows[0].Ready {
		t.Errorf("%+v", rows)
	}
}

// Jobs that run when their disk becomes full are told so, once; those that have ended are not.
func TestRunningJobsHearOfAFullDisk(t *testing.T) {
	r := newRig(t, storetest.SQLiteDatabase(t), oneScaler)
	free := int64(10 << 30)
	r.host.Volume = "/agents"
	r.node.d.FreeDisk = func(string) (int64, error) { return free, nil }
	for _, id := range []string{"busy", "done", "booting"} {
		r.request(id)
	}
	r.tick()
	for _, id := range []string{"busy", "done"} {
		r.register(id)
		r.assign(id)
	}
	r.write(func(tx *store.Tx) error { _, err := tx.ReleaseAgent(t.Context(), "done", 1); return err })
	for _, free = range []int64{100 << 20, 90 << 20, 10 << 30, 80 << 20} {
		r.tick()
	}
	var got []string
	for _, id := range []string{"busy", "done"} {
		notes, err := r.st.Read().RunNotes(t.Context(), "run-"+id)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range notes {
			got = append(got, n.JobID+" "+n.Kind+": "+n.Detail)
		}
	}
	want := []string{
		"job-busy disk_low: the disk of /agents has 100 MiB free, and minFreeDisk is 256 MiB: what the job writes may fail",
		"job-busy disk_low: the disk of /agents has 80 MiB free, and minFreeDisk is 256 MiB: what the job writes may fail",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// assign gives an agent the job that it is bound to, in a run of its own.
func (r *rig) assign(id string) {
	r.write(func(tx *store.Tx) error {
		ctx, run, job := r.t.Context(), "run-"+id, "job-"+id
		_, err := tx.InsertRun(ctx, db.InsertRunParams{ID: run, OrgID: "default", Repo: run, Status: "running", Warnings: "[]", Event: "{}", Inputs: "{}", LockEntry: "{}", MatchedTrigger: "{}"})
		if err == nil {
			err = tx.InsertRunJob(ctx, db.InsertRunJobParams{ID: job, RunID: run, OrgID: "default", Status: "running", Matrix: "{}", LockJob: "{}", Outputs: "{}"})
		}
		if err == nil {
			err = tx.DispatchInsertAssignment(ctx, db.DispatchInsertAssignmentParams{JobID: job, Attempt: 1, RunID: run, AgentID: id, CreatedAt: tx.Now()})
		}
		return err
	})
}
