package engines

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/scaler/backend/container/enginetest"
)

const twoScalers = `version: 1
scalers:
  - name: host
    type: bare-metal
    allowRoot: true
    maxAgents: 2
    labelSets: [{labels: [linux]}]
  - name: box
    type: container
    maxAgents: 2
    socketPath: %s
    networkIsolation: false
    labelSets: [{labels: [linux]}]
`

// BM-1, BM-2: with the same labels, jobs that name an image run in it, all others are processes of this machine; where only the first can
// run, a job without an image is told so and starts nothing.
func TestE2EImagesAndProcessesSideBySide(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the engine needs root")
	}
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		e.Import(t, "localhost/kici-own:1", "ENV OF_IMAGE=one")
		w := makeWorld(t, e, setup{})
		w.write("data/scalers.yaml", fmt.Sprintf(twoScalers, e.Socket))
		w.open()
		own := w.startRun("own")
		if d := w.ended(own); d.Status != "success" || !strings.HasPrefix(d.Jobs[0].AgentID, "scaler-container-") {
			t.Fatalf("with an image: %s", show(d))
		}
		plain := w.startRun("long")
		w.until("the job without an image runs", func() bool { d := w.run(plain); return len(d.Jobs) > 0 && d.Jobs[0].Status == "running" })
		if d := w.run(plain); !strings.HasPrefix(d.Jobs[0].AgentID, "scaler-bare-metal-") {
			t.Errorf("without an image: %s", show(d))
		}
		if _, err := w.api.Cancel(t.Context(), plain, false, ""); err != nil {
			t.Error(err)
		}
		w.ended(plain)
		w.until("the container of the first is gone", func() bool { return len(w.containers()) == 0 })
		text := fmt.Sprintf(twoScalers, e.Socket)
		from, to := strings.Index(text, "  - name: host"), strings.Index(text, "  - name: box")
		w.write("data/scalers.yaml", text[:from]+text[to:])
		if out, err := w.api.ReloadScalers(t.Context(), false); err != nil || !out.Applied {
			t.Fatalf("%+v %v", out, err)
		}
		alone := w.startRun("long")
		w.until("it is told why it waits", func() bool { return strings.Contains(w.why(alone), "runs only jobs that name an image") })
		t.Log(w.why(alone))
		if n := len(w.containers()); n > 0 {
			t.Errorf("%d containers were started", n)
		}
		if _, err := w.api.Cancel(t.Context(), alone, false, ""); err != nil {
			t.Error(err)
		}
	})
}
