package engines

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/scaler/backend/container/enginetest"
	"github.com/kici-go/kici/internal/scaler/hostnet"
)

// countedWorkflow leaves a line each time that it runs.
const countedWorkflow = `name: counted
on: workflow_dispatch
jobs:
  counted:
    runs-on: linux
    checkout: false
    steps:
      - run: echo ran >> /shared/ran
`

// TestE2EServerIsKilledAtEveryCall kills the server with SIGKILL at every call of a container's start, before it and after it, starts it
// again (at all of them with KICI_TEST_CRASH_POINTS=all, as make crash does), and expects what would have happened without: the job runs once and succeeds, and nothing is left. The rules of the network are
// made between the last look at the container and the token.
func TestE2EServerIsKilledAtEveryCall(t *testing.T) {
	if testing.Short() {
		t.Skip("starts dozens of servers")
	}
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		registry := enginetest.NewRegistry(t)
		e.Import(t, "localhost/kici-user:1", "USER other")
		all := os.Getenv("KICI_TEST_CRASH_POINTS") == "all"
		for i, c := range calls {
			for k, moment := range []string{beforeCall, afterCall} {
				// In haste, before one call and after the next; with Podman every third of those, as the code is the same.
				if !all && ((i+k)%2 != 0 || e.Name == "podman" && i%3 != 0) {
					continue
				}
				s := setup{isolated: true, image: registry.Ref("crash"), pull: "Always"}
				if c.name == "copy" {
					s.image, s.pull = "localhost/kici-user:1", "Never"
				}
				t.Run(moment+" "+c.name, func(t *testing.T) { killedAt(t, e, s, point{c.name, moment}) })
			}
		}
		for _, moment := range []string{beforeCall, afterCall} {
			t.Run(moment+" "+callToken, func(t *testing.T) { killedAt(t, e, setup{isolated: true}, point{callToken, moment}) })
		}
	})
}

func killedAt(t *testing.T, e *enginetest.Engine, s setup, at point) {
	began := time.Now()
	g := newGate(t, e)
	s.socket = g.socket
	w := makeWorld(t, e, s)
	w.write("shared/ran", "")
	if err := os.Chmod(w.file("shared/ran"), 0o666); err != nil {
		t.Fatal(err)
	}
	g.kill = w.kill
	if strings.HasSuffix(at.call, "network") {
		g.arm(at)
		w.launch()
		w.until("the server is dead", w.dead)
		w.open()
	} else {
		w.open()
		g.arm(at)
	}
	id := w.startRun("counted")
	if !strings.HasSuffix(at.call, "network") {
		w.until("the server is dead", w.dead)
		w.start()
	}
	d := w.ended(id)
	if ran, _ := os.ReadFile(w.file("shared/ran")); d.Status != "success" || string(ran) != "ran\n" {
		t.Errorf("it ran %q\n%s", ran, show(d))
	}
	w.expectNothingLeft()
	t.Logf("%s", time.Since(began).Round(time.Millisecond))
}

// expectNothingLeft is what must hold when all runs have ended.
func (w *world) expectNothingLeft() {
	w.t.Helper()
	var left error
	w.until("nothing is left", func() bool { left = w.left(); return left == nil || w.t.Context().Err() != nil })
	if left != nil {
		w.t.Error(left)
	}
}

// left names what there is of agents: rows, containers, rules, tokens.
func (w *world) left() error {
	agents, err := w.api.Agents(w.t.Context(), false, "", "", 50)
	if err != nil {
		return err
	}
	for _, a := range agents.Agents {
		err = errors.Join(err, fmt.Errorf("agent %s is %s", a.ID, a.State))
	}
	tokens, terr := w.api.AgentTokens(w.t.Context(), "ephemeral")
	for _, t := range tokens.Tokens {
		err = errors.Join(err, fmt.Errorf("the token of agent %s is there", t.AgentID))
	}
	scalers, serr := w.api.Scalers(w.t.Context())
	for _, s := range scalers.Scalers {
		if s.ActiveCount+s.StartingCount+s.EndingCount > 0 || s.UsedMemBytes > 0 || s.UsedCPUMilli > 0 {
			err = errors.Join(err, fmt.Errorf("scaler %s uses something: %+v", s.Name, s))
		}
	}
	if n := len(w.containers()); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d containers", n))
	}
	return errors.Join(err, terr, serr, w.rules())
}

// rules looks for network rules of any agent in this network namespace, which is the test binary's own.
func (w *world) rules() error {
	net, err := hostnet.Open(hostnet.Options{Owner: "test"})
	if err != nil {
		return err
	}
	defer net.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	all, err := net.List(ctx)
	for _, a := range all {
		err = errors.Join(err, fmt.Errorf("rules of agent %s", a.ID))
	}
	return err
}
