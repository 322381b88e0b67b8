package placement

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/ci"
)

var update = flag.Bool("update", false, "write golden files")

// TestReasonsGolden keeps the sentences that people read: of the queue page, `kici why` and the API.
func TestReasonsGolden(t *testing.T) {
	hold := func(w *world, scaler, holder string, n int) {
		for i := range n {
			id := fmt.Sprintf("%s-%s-%d", scaler, strings.Map(letters, holder), i)
			a := w.managed(id, scaler, ci.AgentOnline, "job-"+id)
			a.Job, a.Holder = "job-"+id, holder
		}
	}
	cases := []struct {
		name string
		set  func(*world)
	}{
		{"full, with its holders", func(w *world) {
			w.scaler("vm-linux", 8, "linux", "vm")
			hold(w, "vm-linux", "acme/site #479", 6)
			hold(w, "vm-linux", "acme/shop #481", 2)
			w.jobs("a", 1, ids("j", 1), "linux", "vm")
		}},
		{"backs off", func(w *world) {
			g := w.scaler("gpu-box", 2, "linux", "gpu")
			g.BackoffUntil, g.Failures, g.LastError = w.Now+200_000, 3, "nvidia-smi: no devices"
			w.scaler("vm-linux", 8, "linux")
			w.jobs("a", 1, ids("j", 1), "linux", "gpu")
		}},
		{"backs off again and again", func(w *world) {
			g := w.scaler("gpu-box", 2, "gpu")
			g.BackoffUntil, g.Failures = w.Now+900_000, 7
			w.jobs("a", 1, ids("j", 1), "gpu")
		}},
		{"pauses", func(w *world) {
			g := w.scaler("box", 2, "linux")
			g.BackoffUntil, g.LastError = w.Now+1000, "fork: resource temporarily unavailable"
			w.jobs("a", 1, ids("j", 1), "linux")
		}},
		{"nobody offers a label", func(w *world) {
			w.scaler("vm-linux", 8, "linux")
			w.static("mac-mini", "macos", "macos-14")
			w.jobs("a", 1, ids("j", 1), "macos-15")
		}},
		{"nobody offers the labels together", func(w *world) {
			w.scaler("vm-linux", 8, "linux")
			w.scaler("gpu-box", 8, "gpu")
			w.jobs("a", 1, ids("j", 1), "linux", "gpu")
		}},
		{"a machine pool is full", func(w *world) {
			s := w.scaler("vm-linux", 8, "linux")
			s.Pool = MachinePool{Name: "box", Cap: ci.Resources{CPUMilli: 4000}, Others: ci.Resources{CPUMilli: 2500}}
			hold(w, "vm-linux", "acme/site #479", 1)
			w.Agents[0].Reserved = ci.Resources{CPUMilli: 1000}
			w.jobs("a", 1, ids("j", 1), "linux").Claim = ci.Claim{Requests: ci.Resources{CPUMilli: 1000}}
		}},
		{"nobody runs its image", func(w *world) {
			w.scaler("vm-linux", 8, "linux")
			w.scaler("gpu-box", 8, "gpu").JobImages = true
			w.static("old", "linux")
			w.jobs("a", 1, ids("j", 1), "linux").Image = "golang:1.26"
		}},
		{"only jobs with an image", func(w *world) {
			s := w.scaler("box", 8, "linux")
			s.JobImages, s.LabelSets[0].OnlyImages = true, true
			w.scaler("gpu-box", 8, "gpu")
			w.jobs("a", 1, ids("j", 1), "linux")
		}},
		{"who runs its image is full", func(w *world) {
			w.scaler("vm-linux", 8, "linux")
			w.scaler("box", 1, "linux").JobImages = true
			hold(w, "box", "acme/site #479", 1)
			w.jobs("a", 1, ids("j", 1), "linux").Image = "golang:1.26"
		}},
		{"nothing there at all", func(w *world) {
			w.jobs("a", 1, ids("j", 1), "linux")
		}},
		{"gate and exclusion", func(w *world) {
			w.scaler("mac", 2, "linux", "macos").LabelSets[0].Gate = []string{"macos"}
			w.scaler("old", 2, "linux", "centos")
			w.jobs("a", 1, ids("j", 1), "linux").Exclude = []string{"centos"}
		}},
		{"too large and no room", func(w *world) {
			w.scaler("small", 2, "linux").Cap = ci.Resources{CPUMilli: 4000}
			w.scaler("used", 4, "linux").Cap = ci.Resources{CPUMilli: 16000, MemBytes: 64 * gib}
			hold(w, "used", "acme/site #479", 1)
			w.Agents[0].Reserved = ci.Resources{CPUMilli: 12500, MemBytes: 16 * gib}
			w.jobs("a", 1, ids("j", 1), "linux").Claim = ci.Claim{Requests: ci.Resources{CPUMilli: 8000, MemBytes: 3 * gib / 2}}
		}},
		{"no memory", func(w *world) {
			w.Nodes[0].GlobalCap = ci.Resources{MemBytes: 4 * gib}
			w.scaler("vm", 4, "linux")
			hold(w, "vm", "acme/site #479", 1)
			w.Agents[0].Reserved = ci.Resources{MemBytes: 3 * gib}
			w.jobs("a", 1, ids("j", 1), "linux").Claim = ci.Claim{Requests: ci.Resources{MemBytes: 3 * gib / 2}}
		}},
		{"node full over all its scalers", func(w *world) {
			w.Nodes[0].GlobalMaxAgents = 3
			w.scaler("a", 4, "linux")
			w.scaler("b", 4, "other")
			hold(w, "b", "acme/site #479", 2)
			w.jobs("a", 1, ids("j", 3), "linux")
		}},
		{"on its way", func(w *world) {
			w.scaler("vm", 4, "linux")
			w.managed("scaler-bare-metal-0a0a0a0a", "vm", ci.AgentBooting, "j00")
			w.jobs("a", 1, ids("j", 1), "linux")
		}},
		{"some on their way, the rest waits", func(w *world) {
			w.scaler("vm", 2, "linux")
			w.managed("m1", "vm", ci.AgentBooting, "j00").Holder = "acme/site #480"
			w.managed("m2", "vm", ci.AgentOnline, "j01").Connected = false
			w.Agents[1].Holder = "acme/site #480"
			w.jobs("a", 1, ids("j", 4), "linux")
		}},
		{"agents that cannot take it now", func(w *world) {
			w.static("busy", "linux").Holder = "acme/app #91"
			w.Agents[0].Job = "x"
			w.static("drains", "linux").Draining = true
			w.static("away", "linux").Connected = false
			w.static("free", "linux")
			w.static("wrong", "windows")
			w.static("foreign", "linux").OrgID = "else"
			w.jobs("a", 1, ids("j", 2), "linux")
		}},
		{"scalers that start nothing", func(w *world) {
			w.Nodes = append(w.Nodes, Node{ID: "n2", Name: "build-2", GlobalMaxAgents: 9}, Node{ID: "n3", Name: "build-3", Live: true, Draining: true, GlobalMaxAgents: 9})
			w.scaler("retired", 1, "linux").Retiring = true
			broken := w.scaler("broken", 1, "linux")
			broken.Ready, broken.NotReady = false, "no container runtime answers on /run/podman.sock"
			w.scaler("lost", 1, "linux").NodeID = "n2"
			w.scaler("drains", 1, "linux").NodeID = "n3"
			w.jobs("a", 1, ids("j", 1), "linux")
		}},
		{"one name on two nodes", func(w *world) {
			w.Nodes = append(w.Nodes, Node{ID: "n2", Name: "build-2", Live: true, GlobalMaxAgents: 9})
			w.scaler("vm", 1, "linux")
			w.scaler("vm", 1, "linux").NodeID = "n2"
			hold(w, "vm", "acme/site #479", 1)
			w.jobs("a", 1, ids("j", 2), "linux")
		}},
		{"holders of another organisation have no name", func(w *world) {
			w.scaler("vm", 3, "linux")
			hold(w, "vm", "secret/thing #1", 2)
			for i := range w.Agents {
				w.Agents[i].OrgID = "else"
			}
			w.managed("m-ending", "vm", ci.AgentEnding, "x").Holder = "acme/site #1"
			w.jobs("a", 1, ids("j", 1), "linux")
		}},
		{"very many", func(w *world) {
			for i := range 130 {
				w.scaler(fmt.Sprintf("s%03d", i), 1, "windows")
			}
			for i := range 60 {
				w.static(fmt.Sprintf("agent-%02d", i), "linux").Job = "x"
			}
			for i := range 5 {
				w.static(fmt.Sprintf("other-%02d", i), "windows")
			}
			w.jobs("a", 1, ids("j", 1), "linux")
		}},
	}
	var b strings.Builder
	for _, c := range cases {
		w := newWorld()
		c.set(w)
		d := w.decide()
		checkInvariants(t, w.Snapshot, d)
		r := d.Reasons[0]
		fmt.Fprintf(&b, "== %s: %d wait, routable %v\n", c.name, r.Waiting, r.Routable)
		for i, reason := range r.Reasons {
			if len(r.Reasons) > 40 && i > 3 && i < len(r.Reasons)-6 {
				continue
			}
			fmt.Fprintf(&b, "%s: %s\n", reason.Kind, reason.Text)
		}
	}
	golden(t, "reasons.txt", b.String())
}

func letters(r rune) rune {
	if r >= 'a' && r <= 'z' {
		return r
	}
	return -1
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update writes it):\n%s", path, got)
	}
}

// From the limit on, the sentence says where to look (MG-29).
func TestHintAfterFailures(t *testing.T) {
	for _, c := range []struct {
		failures, after int64
		hint            bool
	}{{4, 0, false}, {5, 0, true}, {5, 6, false}, {6, 6, true}, {1, 1, true}} {
		text := backoffText("vm", &Scaler{BackoffUntil: 1, Failures: c.failures}, c.after)
		if got := strings.Contains(text, "check how it provisions"); got != c.hint {
			t.Errorf("%d failures, limit %d: %s", c.failures, c.after, text)
		}
	}
}
