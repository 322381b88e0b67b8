//go:build linux

package app

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const boxedScaler = `
version: 1
scalers:
  - name: boxed
    type: bare-metal
    runAs: nobody
    sandbox: true
    maxAgents: 4
    workDir: "@work@"
    labelSets:
      - {labels: [linux]}
`

const boxedWorkflow = `
on: workflow_dispatch
jobs:
  boxed:
    runs-on: linux
    steps:
      - run: |
          test -z "$(ls "@data@" 2>/dev/null)" && test ! -e "@dir@/outside" && echo "no data directory"
          ls .kici; touch /usr/x 2>/dev/null || echo "system is read-only"
          (exec 3<>/dev/tcp/127.0.0.1/@port@) 2>/dev/null || echo "server is closed"
          sleep 3600 & echo "x=from the sandbox" >> "$KICI_OUTPUT"
      - run: pgrep sleep >/dev/null && echo "it is still there"; echo "home $HOME"; echo kept > "$HOME/file"; kici event emit --help >/dev/null && echo "kici is there"
      - run: sleep 3600
        timeout-minutes: 0.02
      - if: always()
        run: cat "$HOME/file"; kill -9 $$
  asks:
    runs-on: linux
    sandbox: {capabilities: NET_BIND_SERVICE}
    steps:
      - run: grep CapEff /proc/self/status
  network:
    runs-on: linux
    needs: {job: asks, on: always}
    sandbox: {network: host}
    steps:
      - run: (exec 3<>/dev/tcp/127.0.0.1/@port@) && echo "server is open"
`

// Steps of a bare-metal agent in a sandbox: what they see, how they end, and what a job may ask for with its organisation's leave.
func TestE2ESandbox(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to run agents as another user")
	}
	w := newBoxedWorld(t)
	id := w.startRun("boxed")
	d := w.ended(id)
	boxed := job(d, "boxed")
	said := w.log(id, boxed.ID, 0) + w.log(id, boxed.ID, 1) + w.log(id, boxed.ID, 2) + w.log(id, boxed.ID, 4)
	for _, want := range []string{
		"Sandbox: processes and files of its own", "no data directory", "system is read-only", "server is closed", "it is still there", "kici is there", "kept",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
	if got := w.log(id, boxed.ID, 3); !strings.Contains(got, "exceeded its timeout") {
		t.Errorf("the step that hangs: %s", got)
	}
	if got := w.log(id, boxed.ID, 4); !strings.Contains(got, "ended by SIGKILL") {
		t.Errorf("the step that dies of a signal: %s", got)
	}
	for name, key := range map[string]string{"asks": "sandboxAllowedCapabilities", "network": "sandboxAllowHostNetwork"} {
		if j := job(d, name); j.Status != "failed" || j.InitFailure != "sandbox_denied" || !strings.Contains(j.Error, key) {
			t.Errorf("%s: %+v", name, j)
		}
	}
	w.noAgents()

	if _, err := w.api.SetOrgSettings(t.Context(), map[string]json.RawMessage{
		"sandboxAllowedCapabilities": json.RawMessage(`["CAP_NET_BIND_SERVICE"]`), "sandboxAllowHostNetwork": json.RawMessage("true"),
	}); err != nil {
		t.Fatal(err)
	}
	id = w.startRun("boxed")
	d = w.ended(id)
	if got := w.log(id, job(d, "asks").ID, 1); !strings.Contains(got, "0000000000000400") {
		t.Errorf("the capability that it asked for: %s", got)
	}
	if got := w.log(id, job(d, "network").ID, 1); !strings.Contains(got, "server is open") {
		t.Errorf("the network that it asked for: %s", got)
	}
	w.noAgents()
	if left, _ := os.ReadDir(w.file("work")); len(left) > 1 { // the program
		t.Errorf("left in the work folder: %v", left)
	}
}

// newBoxedWorld is a world whose agents are another user's, who must reach the repository and the work folder.
func newBoxedWorld(t *testing.T) *world {
	var file string
	w := newWorld(t, func(o *Options) {
		base := filepath.Dir(o.DataDir)
		for dir := base; strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		file = filepath.Join(base, "scalers.yaml")
		o.ScalerConfig = file
		text := strings.ReplaceAll(boxedScaler, "@work@", filepath.Join(base, "work"))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	w.boxes()
	workflow := boxedWorkflow
	for from, to := range map[string]string{"@data@": w.o.DataDir, "@dir@": w.dir, "@port@": strings.TrimPrefix(w.s.URL(), "http://127.0.0.1:")} {
		workflow = strings.ReplaceAll(workflow, from, to)
	}
	for path, text := range map[string]string{w.file("repo", ".kici", "workflows", "boxed.yaml"): workflow, w.file("outside"): "x"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w.git("add", "-A")
	w.git("commit", "-q", "-m", "boxed")
	return w
}

// boxes skips a test where there can be no whole sandbox, or fails it where there must be.
func (w *world) boxes() {
	w.t.Helper()
	lacks := func(why string) {
		if slices.Contains(strings.Split(os.Getenv("KICI_TEST_REQUIRE"), ","), "sandbox") {
			w.t.Fatalf("%s, and KICI_TEST_REQUIRE names sandbox", why)
		}
		w.t.Skip(why)
	}
	w.eventually("the scaler is prepared", func() bool {
		list, err := w.api.Scalers(w.t.Context())
		if err != nil || len(list.Scalers) == 0 {
			return false
		}
		s := list.Scalers[0]
		if s.State == "not ready" {
			lacks(s.StateText)
		}
		for _, line := range s.NotProtected {
			if strings.Contains(line, "no namespaces") || strings.Contains(line, "no Landlock") {
				lacks(line)
			}
		}
		return s.State == "ready"
	})
}
