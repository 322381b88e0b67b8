package app

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const unitScaler = `
version: 1
scalers:
  - {name: local, type: bare-metal, runAs: nobody, enforceCgroups: true, maxAgents: 2, labelSets: [{labels: [linux], resources: {cpus: 1, memory: 256m}}]}
`

const unitWorkflow = `
name: waiting
on: workflow_dispatch
jobs:
  long:
    runs-on: linux
    steps:
      - run: |
          touch /shared/talk/started
          until [ -e /shared/talk/go ]; do sleep 0.05; done
          grep memory /proc/self/cgroup; id -u
`

// unitScript plays an administrator. Inside of that systemd everything that it writes outside of /shared is thrown away.
const unitScript = `
set -eu
cd /shared
export HOME=/root
cp kici /usr/bin/kici
install -d -m 755 /etc/kici
echo KICI_SCALER_CONFIG_PATH=/shared/scalers.yaml >/etc/kici/kici.env
cp kici.service /run/systemd/system/
install -d -m 777 talk
g() { git -C repo -c user.name=t -c user.email=t@example.org "$@"; }
git init -q -b main repo && g add -A && g commit -q -m first
systemctl daemon-reload
systemctl start kici
export KICI_DATA_DIR=/var/lib/kici
kici source add local /shared/repo --name shop
kici run start waiting --source shop
until [ -e talk/started ]; do sleep 0.05; done
scope=$(systemctl list-units --plain --no-legend 'kici-agent-*.scope' | cut -d' ' -f1)
echo "scope=$scope memory=$(systemctl show -P MemoryMax "$scope") slice=$(systemctl show -P Slice "$scope")"
procs=/sys/fs/cgroup/memory/kici.slice/kici-scaler.slice/$scope/cgroup.procs
agent=$(head -1 "$procs")

sed -i 's/maxAgents: 2/maxAgents: 3/' scalers.yaml
systemctl reload kici
until kici scaler list | grep -q 1/3; do sleep 0.05; done
echo reloaded

before=$(systemctl show -P MainPID kici)
systemctl restart kici
after=$(systemctl show -P MainPID kici)
[ "$before" != "$after" ] && [ "$(systemctl is-active kici)" = active ] && echo restarted
[ "$(head -1 "$procs")" = "$agent" ] && echo "the agent lives"
touch talk/go
kici run watch >/dev/null && echo "the run has ended well"
kici run logs
until [ -z "$(systemctl list-units --all --plain --no-legend 'kici-agent-*.scope')" ]; do sleep 0.05; done
echo "no scope is left"
`

// The packaged unit under a real systemd: a reload takes up a changed file, and a job's agent, in a scope of its own under its limits,
// lives on when the server is restarted.
func TestE2EPackagedUnitReloadsAndRestarts(t *testing.T) {
	if os.Geteuid() != 0 {
		requireSystemd(t, errors.New("not root"))
	}
	dir, err := os.MkdirTemp("/var/tmp", "kici-systemd-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	unit, err1 := os.ReadFile("../../packaging/systemd/kici.service")
	program, err2 := os.ReadFile(os.Args[0]) // this test binary is kici when it is called so
	if err := errors.Join(err1, err2, os.Chmod(dir, 0o755), os.MkdirAll(filepath.Join(dir, "repo", ".kici", "workflows"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"kici": string(program), "kici.service": string(unit), "scalers.yaml": unitScaler, "repo/.kici/workflows/ci.yaml": unitWorkflow, "play": unitScript,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil { //nolint:gosec // one is run
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", "-t", startSystemd(t, dir), "-a", "--", "timeout", "80", "bash", "/shared/play")
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	for _, want := range []string{
		"memory=268435456 slice=kici-scaler.slice\n", "reloaded\n", "restarted\n", "the agent lives\n", "the run has ended well\n", "65534\n", "no scope is left\n",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("it did not say %q", want)
		}
	}
	if err != nil || t.Failed() {
		log, _ := os.ReadFile(filepath.Join(dir, "log"))
		t.Fatalf("%v\n%s\n%s", err, out, log[max(0, len(log)-4000):])
	}
}

// startSystemd starts one that lives as long as the test and returns its pid.
func startSystemd(t *testing.T, dir string) string {
	t.Helper()
	cmd := exec.Command("../../scripts/systemd.sh", dir)
	hold, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		requireSystemd(t, err)
	}
	t.Cleanup(func() { _ = hold.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		requireSystemd(t, err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return strings.TrimSpace(line)
}

func requireSystemd(t *testing.T, err error) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("KICI_TEST_REQUIRE"), ","), "systemd") {
		t.Fatalf("no systemd of its own can be started (%v), and KICI_TEST_REQUIRE names systemd", err)
	}
	t.Skipf("SKIPPED: no systemd of its own can be started: %v", err)
}
