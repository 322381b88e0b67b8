package container

import (
	"errors"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/scaler/backend/container/enginetest"
)

// An examination names the engine with its version, and what is wrong when agents cannot be isolated or nobody answers.
func TestExamine(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r := newRig(t, e)
		b := r.backend("one")
		facts, err := b.Examine(r.ctx())
		text := strings.Join(facts, ", ")
		if name := map[string]string{"docker": "Docker ", "podman": "Podman "}[e.Name]; err != nil || !strings.HasPrefix(text, name) {
			t.Fatalf("%q, %v", text, err)
		}
		for _, want := range []string{" at " + e.Socket, "agents are not isolated", "limits by the engine", " images"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in %q", want, text)
			}
		}
		t.Log(text)
		delete(r.options, keyIsolation)
		isolated, err := open(r.entry("two"), r.host(), realFacts())
		if err != nil {
			t.Fatal(err)
		}
		defer isolated.Close()
		_ = isolated.rules.Close()
		isolated.rules = &fakeRules{}
		if facts, err := isolated.Examine(r.ctx()); err != nil || !strings.Contains(strings.Join(facts, ", "), "isolated by nftables") {
			t.Errorf("%q, %v", facts, err)
		}
		isolated.rules = &fakeRules{check: errors.New("CAP_NET_ADMIN is missing")}
		if facts, err := isolated.Examine(r.ctx()); err == nil || !strings.Contains(err.Error(), "CAP_NET_ADMIN is missing") || len(facts) != 1 {
			t.Errorf("%q, %v", facts, err)
		}
	})
	r := newRig(t, enginetest.Get(t, "docker"))
	g, err := newEngine(r.entry("gone"), r.host(), endpoint{URL: "unix:///nowhere.sock"})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, err := g.configured(r.entry("gone")).Examine(t.Context()); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("nobody is there: %v", err)
	}
}
