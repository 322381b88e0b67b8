package ingress

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// registered are "workflow@commit" of a source, by workflow.
func (w *world) registered() []string {
	w.t.Helper()
	rows, err := w.st.Read().RegistrationsOfOrg(context.Background(), "default")
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, r := range rows {
		out = append(out, r.Workflow+"@"+r.CommitSha[:7])
	}
	return out
}

func (w *world) registration(name string) db.WorkflowRegistration {
	w.t.Helper()
	rows, err := w.st.Read().RegistrationsOfOrg(context.Background(), "default")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range rows {
		if r.Workflow == name {
			return r
		}
	}
	w.t.Fatalf("%s is not registered", name)
	return db.WorkflowRegistration{}
}

func TestRegisterByHand(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st)
		r, first := newRepo(t, map[string]string{
			".kici/workflows/a.yaml": yaml("a", "push"), ".kici/workflows/b.yaml": yaml("b", "{schedule: [{cron: '0 4 * * *'}]}"),
		})
		w.source("demo", r.dir)
		got, err := w.in.Register(t.Context(), RegisterRequest{OrgID: "default", Source: "demo", By: "ann"})
		if err != nil || got.Version != 1 || got.SHA != first || got.Repo != "demo" || !slices.Equal(got.Workflows, []string{"a", "b"}) {
			t.Fatalf("%+v %v", got, err)
		}
		if rows, err := st.Read().SchedulesOfRegistration(t.Context(), w.registration("b").ID); err != nil || len(rows) != 1 || !rows[0].NextAt.Valid {
			t.Errorf("%+v %v", rows, err)
		}
		// One of another commit: the other stays as it is (REG-5).
		second := r.commit("second", map[string]string{".kici/workflows/c.yaml": yaml("c", "push")})
		if _, err = w.in.Register(t.Context(), RegisterRequest{OrgID: "default", Source: "demo", Ref: "main", Workflows: []string{"a"}}); err != nil {
			t.Fatal(err)
		}
		if got, want := w.registered(), []string{"a@" + second[:7], "b@" + first[:7]}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		for _, c := range []struct {
			r    RegisterRequest
			is   error
			says string
		}{
			{RegisterRequest{Source: "demo", Workflows: []string{"zzz"}}, ErrInvalid, "there is no workflow"},
			{RegisterRequest{Source: "demo", Ref: "nowhere"}, ErrInvalid, "no branch"},
			{RegisterRequest{Source: "none"}, ErrNotFound, "no such source"},
		} {
			c.r.OrgID = "default"
			if _, err := w.in.Register(t.Context(), c.r); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%+v: %v", c.r, err)
			}
		}
		r.commit("broken", map[string]string{".kici/workflows/c.yaml": "on: psuh"})
		if _, err := w.in.Register(t.Context(), RegisterRequest{OrgID: "default", Source: "demo"}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "c.yaml") {
			t.Error(err)
		}
	})
}

// The policy of GLB-2 at registration by hand (REG-6).
func TestRegisterRefusesGlobalsThatMayNotBe(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		allow := []RepoRule{{Pattern: "acme/*"}}
		w := newWorld(t, st, func(d *Deps) { d.Globals = func(string) Globals { return Globals{Enabled: true, Allow: allow} } })
		r, _ := newRepo(t, map[string]string{".kici/workflows/a.yaml": yaml("a", "{push: {repos: ['**']}}"), ".kici/workflows/b.yaml": yaml("b", "push")})
		w.source("demo", r.dir)
		_, err := w.in.Register(t.Context(), RegisterRequest{OrgID: "default", Source: "demo"})
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "may author") || len(w.registered()) != 0 {
			t.Errorf("%v %v", err, w.registered())
		}
		if _, err := w.in.Register(t.Context(), RegisterRequest{OrgID: "default", Source: "demo", Workflows: []string{"b"}}); err != nil {
			t.Error(err)
		}
		allow = append(allow, RepoRule{Pattern: "demo"})
		if _, err := w.in.Register(t.Context(), RegisterRequest{OrgID: "default", Source: "demo"}); err != nil || !w.registration("a").IsGlobal {
			t.Error(err)
		}
	})
}

func TestRefresh(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st)
		r, _ := newRepo(t, map[string]string{".kici/workflows/a.yaml": yaml("a", "push"), ".kici/workflows/b.yaml": yaml("b", "push")})
		w.source("demo", r.dir)
		if _, err := w.in.Refresh(t.Context(), "default", "demo", "ann"); err != nil {
			t.Fatal(err)
		}
		second := r.commit("second", map[string]string{".kici/workflows/b.yaml": ""})
		got, err := w.in.Refresh(t.Context(), "default", "demo", "ann")
		if err != nil || got.SHA != second || !slices.Equal(w.registered(), []string{"a@" + second[:7]}) {
			t.Errorf("%+v %v %v", got, err, w.registered())
		}
		if again, err := w.in.Refresh(t.Context(), "default", "demo", "ann"); err != nil || again.Version != got.Version {
			t.Errorf("%+v after %+v, %v: nothing has changed", again, got, err)
		}
		// What is broken removes nothing; what is gone removes all.
		r.commit("broken", map[string]string{".kici/workflows/a.yaml": "on: psuh"})
		if _, err := w.in.Refresh(t.Context(), "default", "demo", "ann"); !errors.Is(err, ErrInvalid) || len(w.registered()) != 1 {
			t.Errorf("%v %v", err, w.registered())
		}
		r.commit("gone", map[string]string{".kici/workflows/a.yaml": "", "README": "x"})
		if got, err := w.in.Refresh(t.Context(), "default", "demo", "ann"); err != nil || len(w.registered()) != 0 || len(got.Workflows) != 0 {
			t.Errorf("%+v %v %v", got, err, w.registered())
		}
	})
}

const scheduled = `name: nightly
on:
  push:
  schedule:
    - cron: '30 4 * * *'
      timezone: Europe/Berlin
      inputs: {level: {type: integer, default: 3}}
jobs:
  build:
    runs-on: linux
    steps:
      - run: echo ${{ inputs.level }}
`

func TestRunScheduleByHand(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st)
		r, first := newRepo(t, map[string]string{".kici/workflows/n.yaml": scheduled, ".kici/workflows/b.yaml": yaml("plain", "push")})
		w.source("demo", r.dir)
		if _, err := w.in.Refresh(t.Context(), "default", "demo", "ann"); err != nil {
			t.Fatal(err)
		}
		r.commit("later", map[string]string{"README": "x"}) // the registered commit runs, not the newest
		id := w.registration("nightly").ID
		req := RunScheduleRequest{OrgID: "default", RegistrationID: id, By: "ann", RequestID: "one"}
		run, err := w.in.RunSchedule(t.Context(), req)
		if err != nil || run == "" {
			t.Fatal(run, err)
		}
		if again, err := w.in.RunSchedule(t.Context(), req); err != nil || again != run {
			t.Errorf("a repeat made %s after %s: %v", again, run, err)
		}
		runs := w.runs()
		if len(runs) != 1 {
			t.Fatalf("%+v", runs)
		}
		got := runs[0]
		if got.ID != run || got.Sha != first || got.TriggerEvent != "manual_schedule" || got.Actor != "ann" || got.Branch != "main" || got.Workflow != "nightly" || got.Title != "first" {
			t.Errorf("%+v", got)
		}
		def, err := st.Read().RunDefinition(t.Context(), run)
		if err != nil || def.Inputs != `{"level":3}` {
			t.Errorf("inputs %s %v", def.Inputs, err)
		}
		if told := w.told.events; len(told) != 1 || told[0].Name != EventManual || told[0].Repo != "demo" || told[0].Actor != "ann" ||
			!strings.Contains(string(told[0].Payload), `"runId":"`+run+`"`) || !strings.Contains(string(told[0].Payload), `"requestedBy":"ann"`) {
			t.Errorf("events %+v", told)
		}
		before := w.schedule(id)
		if before.LastEventID != "" {
			t.Errorf("the schedule itself has fired: %+v", before)
		}
		w.refusedSchedules(id)
	})
}

func (w *world) schedule(id string) db.Schedule {
	w.t.Helper()
	rows, err := w.st.Read().SchedulesOfRegistration(context.Background(), id)
	if err != nil || len(rows) != 1 {
		w.t.Fatal(rows, err)
	}
	return rows[0]
}

func (w *world) refusedSchedules(id string) {
	w.t.Helper()
	t := w.t
	run := func(org, id string) error {
		_, err := w.in.RunSchedule(context.Background(), RunScheduleRequest{OrgID: org, RegistrationID: id, By: "ann"})
		return err
	}
	if err := run("default", "nothing"); !errors.Is(err, ErrNoRegistration) {
		t.Error(err)
	}
	if err := run("elsewhere", id); !errors.Is(err, ErrNoRegistration) {
		t.Error(err)
	}
	if err := run("default", w.registration("plain").ID); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "no schedule") {
		t.Error(err)
	}
	disabled := func(off bool) {
		if err := w.st.Write(context.Background(), func(tx *store.Tx) error {
			if _, err := tx.SetRegistrationDisabled(context.Background(), off, "default", id); err != nil {
				return err
			}
			return tx.BumpRegistryVersion(context.Background())
		}); err != nil {
			t.Fatal(err)
		}
	}
	disabled(true)
	if err := run("default", id); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "disabled") {
		t.Error(err)
	}
	disabled(false)
	if err := w.in.Enable(context.Background(), "default", "demo", false); err != nil {
		t.Fatal(err)
	}
	if err := run("default", id); err != nil { // as of a fire: a failed run says why
		t.Error(err)
	}
	if runs := w.runs(); len(runs) != 2 || runs[0].Status != "failed" {
		t.Errorf("%+v", runs)
	}
}
