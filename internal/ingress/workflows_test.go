package ingress

import (
	"errors"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/store"
)

func TestWorkflowsOfARef(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st)
		r, first := newRepo(t, map[string]string{".kici/workflows/deploy.yaml": dispatchable, ".kici/workflows/ci.yaml": yaml("ci", "push")})
		r.git("tag", "v1")
		second := r.commit("second", map[string]string{"x": "1"})
		w.source("demo", r.dir)
		for ref, want := range map[string][2]string{"": {second, "refs/heads/main"}, "main": {second, "refs/heads/main"}, "v1": {first, "refs/tags/v1"}, first[:10]: {first, ""}} {
			got, err := w.in.Workflows(t.Context(), "default", "demo", ref)
			if err != nil || got.SHA != want[0] || got.Ref != want[1] || got.DefaultBranch != "main" || got.Source != "demo" || len(got.File.Workflows) != 2 {
				t.Errorf("%q: %+v %v", ref, got, err)
			}
		}
		if _, err := w.in.Workflows(t.Context(), "default", "demo", "nope"); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "nope") {
			t.Errorf("no such ref: %v", err)
		}
		if _, err := w.in.Workflows(t.Context(), "default", "other", ""); !errors.Is(err, ErrNotFound) {
			t.Errorf("no such source: %v", err)
		}
		r.commit("broken", map[string]string{".kici/workflows/ci.yaml": "on: [push]\njobs: 7\n"})
		if _, err := w.in.Workflows(t.Context(), "default", "demo", ""); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "ci.yaml") {
			t.Errorf("with faults: %v", err)
		}
	})
}
