package sandbox

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/ci"
)

// expectation is a script in a box and what must come of it.
type expectation struct {
	name, script string
	code         int
	has, hasNot  []string // of its output
	needs        string   // "namespaces": only there; "landlock": only without them
	python       bool     // it takes one to show
}

// hasPython reports whether scripts find one.
func hasPython() bool { _, err := os.Stat("/usr/bin/python3"); return err == nil }

func TestBox(t *testing.T) {
	r := newRig(t)
	outside := startOutside(t, r)
	port := listenOutside(t)
	all := []expectation{
		{name: "works in its workspace", script: "id -u; pwd; echo hi > file && mv file other && ln -f other third && cat third", has: []string{fmt.Sprint(testUser), r.path("workspace"), "hi"}},
		{name: "reads what it is shown", script: "cat " + r.path("seen", "file"), has: []string{"the secret"}},
		{name: "does not write it", script: "echo x > " + r.path("seen", "file"), code: 1},
		{name: "does not see what it is not shown", script: "cat " + r.path("secret", "key"), code: 1, hasNot: []string{"the secret"}},
		{name: "cannot look around a link", script: "ln -s " + r.path("secret") + " link; cat link/key", code: 1, hasNot: []string{"the secret"}},
		{name: "reads the system", script: "test -r /etc/passwd && ls /usr/bin >/dev/null && head -c 1 /dev/urandom | wc -c", has: []string{"1"}},
		{name: "does not write the system", script: "touch /usr/x /etc/x /opt/x", code: 1},
		{name: "sees no other home", script: "ls /home /root /var/lib /srv 2>/dev/null", code: 2},
		{name: "has a /tmp of its own", script: "echo mine > /tmp/file && cat /tmp/file && test ! -e /tmp/foreign", has: []string{"mine"}, needs: "namespaces"},
		{name: "that stays between steps", script: "cat /var/tmp/file", has: []string{"mine"}, needs: "namespaces"},
		{name: "has a closed /tmp", script: "ls /tmp; touch /tmp/x", code: 1, needs: "landlock"},
		{name: "has a folder for temporary files", script: "echo x > " + r.path("tmp", "y") + " && cat " + r.path("tmp", "y"), has: []string{"x"}, needs: "landlock"},
		{name: "sees its own processes only", script: "ps -e -o pid= | wc -l; test ! -e /proc/" + fmt.Sprint(outside) + "/environ", needs: "namespaces"},
		{name: "cannot signal a process outside", script: fmt.Sprintf("kill -0 %d", outside), code: 1},
		{name: "cannot read one's memory or environment", script: fmt.Sprintf("cat /proc/%d/environ /proc/%d/maps", outside, outside), code: 1, hasNot: []string{"OUTSIDE_SECRET"}},
		{name: "cannot read the box's memory or environment", script: "cat /proc/$PPID/environ /proc/$PPID/maps", code: 1, hasNot: []string{"r-xp"}},
		{name: "cannot trace the box", script: `python3 -c 'import ctypes, os; exit(0 if ctypes.CDLL(None).ptrace(0x4206, os.getppid(), 0, 0) < 0 else 3)' # PTRACE_SEIZE: it stops nothing`, python: true},
		{name: "has no capability", script: "grep -E '^Cap(Inh|Prm|Eff|Amb)' /proc/self/status", has: []string{"0000000000000000"}, hasNot: []string{"1", "8"}},
		{name: "gets no new privileges", script: "grep -E 'NoNewPrivs|Seccomp:' /proc/self/status | tr -d '\\t\\n'", has: []string{"NoNewPrivs:1Seccomp:2"}},
		{name: "makes no namespaces", script: "unshare -U true", code: 1},
		{name: "mounts nothing", script: "mount -t tmpfs none " + r.path("workspace"), code: 32},
		{name: "reaches no port of the machine", script: fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d", port), code: 1},
		{name: "leaves a server running", script: "python3 -m http.server 18080 >/dev/null 2>&1 & for i in $(seq 100); do (exec 3<>/dev/tcp/127.0.0.1/18080) 2>/dev/null && exit 0; sleep 0.1; done; exit 1", needs: "namespaces", python: true},
		{name: "which the next step finds", script: "exec 3<>/dev/tcp/127.0.0.1/18080 && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && head -1 <&3", has: []string{"200 OK"}, needs: "namespaces", python: true},
		{name: "cannot end the box", script: "kill -9 1; sleep 0.1; echo alive", has: []string{"alive"}, needs: "namespaces"},
		{name: "exits with a code", script: "exit 7", code: 7},
		{name: "dies of a signal", script: "kill -9 $$", code: 137},
		{name: "has a large environment", script: "echo ${#BIG}", has: []string{"102400"}},
	}
	for _, namespaces := range []bool{true, false} {
		t.Run(fmt.Sprintf("namespaces=%v", namespaces), func(t *testing.T) {
			var wanted []expectation
			var scripts []string
			for _, e := range all {
				if e.python && !hasPython() {
					t.Logf("not shown without python3: %s", e.name)
					continue
				}
				if e.needs == "" || (e.needs == "namespaces") == namespaces {
					wanted, scripts = append(wanted, e), append(scripts, e.script)
				}
			}
			res := r.play(t, played{Config: r.config(), Namespaces: namespaces, Scripts: scripts})
			if res.Error != "" {
				t.Fatal(res.Error)
			}
			for i, e := range wanted {
				check1(t, e, res.Results[i])
			}
			t.Logf("%+v", res.Report)
			if namespaces && (len(res.Report.Missing) > 0 || !res.Report.Private) {
				t.Errorf("with namespaces and Landlock something is missing: %v", res.Report.Missing)
			}
			if !namespaces && len(res.Report.Missing) == 0 {
				t.Error("Landlock alone does not keep all, and that must be said")
			}
		})
	}
}

func check1(t *testing.T, e expectation, got result) {
	t.Helper()
	if got.Error != "" || got.Exit.Code != e.code {
		t.Errorf("%s: code %d, want %d, error %q:\n%s", e.name, got.Exit.Code, e.code, got.Error, got.Out)
	}
	for _, s := range e.has {
		if !strings.Contains(got.Out, s) {
			t.Errorf("%s: no %q in\n%s", e.name, s, got.Out)
		}
	}
	for _, s := range e.hasNot {
		if strings.Contains(got.Out, s) {
			t.Errorf("%s: %q in\n%s", e.name, s, got.Out)
		}
	}
}

// startOutside is a process of the same user, not in a box.
func startOutside(t *testing.T, r *rig) int {
	t.Helper()
	cmd := exec.Command("sleep", "300")
	cmd.Env, cmd.SysProcAttr = []string{"OUTSIDE_SECRET=1"}, r.asUser()
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

func listenOutside(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

func TestNetworkOfTheHost(t *testing.T) {
	r := newRig(t)
	c := r.config()
	c.Network = ci.NetworkHost
	script := fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d && echo reached", listenOutside(t))
	for _, namespaces := range []bool{true, false} {
		res := r.play(t, played{Config: c, Namespaces: namespaces, Scripts: []string{script, "cat " + r.path("secret", "key")}})
		if res.Error != "" || !strings.Contains(res.Results[0].Out, "reached") || res.Results[1].Exit.Code == 0 {
			t.Errorf("namespaces=%v: %+v", namespaces, res)
		}
	}
}

func TestCapabilities(t *testing.T) {
	r := newRig(t)
	if !hasPython() {
		t.Skip("needs python3")
	}
	c := r.config()
	c.Capabilities = []string{"CAP_NET_BIND_SERVICE", "CAP_SYS_PTRACE"}
	const script = `grep CapEff /proc/self/status; python3 -c 'import socket; socket.socket().bind(("127.0.0.1", 80)); print("bound")'`
	res := r.play(t, played{Config: c, Namespaces: true, Scripts: []string{script}})
	if res.Error != "" || !strings.Contains(res.Results[0].Out, "bound") || !strings.Contains(res.Results[0].Out, "0000000000080400") {
		t.Errorf("%+v", res)
	}
	if res := r.play(t, played{Config: c}); !strings.Contains(res.Error, "cannot be given without a user namespace") {
		t.Errorf("without namespaces: %+v", res)
	}
	c.Capabilities = []string{"CAP_NOTHING"}
	if res := r.play(t, played{Config: c, Namespaces: true}); !strings.Contains(res.Error, "CAP_NOTHING") {
		t.Errorf("an unknown one: %+v", res)
	}
}

func TestHidden(t *testing.T) {
	r := newRig(t)
	c := r.config()
	c.Read = []string{r.dir} // all of the job's folder, but not the secret
	c.Hidden = []string{r.path("secret")}
	for _, namespaces := range []bool{true, false} {
		res := r.play(t, played{Config: c, Namespaces: namespaces, Scripts: []string{"cat " + r.path("seen", "file"), "cat " + r.path("secret", "key"), "echo x > file"}})
		var codes []int
		for _, x := range res.Results {
			codes = append(codes, x.Exit.Code)
		}
		if !slices.Equal(codes, []int{0, 1, 0}) {
			t.Errorf("namespaces=%v: %v %+v", namespaces, codes, res)
		}
	}
}

// TestFaults: what is wrong is said before anything runs.
func TestFaults(t *testing.T) {
	r := newRig(t)
	c := r.config()
	c.Read = []string{"/does/not/exist"}
	if res := r.play(t, played{Config: c, Namespaces: true}); !strings.Contains(res.Error, "/does/not/exist") {
		t.Errorf("%+v", res)
	}
	if _, err := Open(t.Context(), r.config(), Options{Executable: r.program}); err == nil || !strings.Contains(err.Error(), "root") {
		t.Errorf("a sandbox around root: %v", err)
	}
}

// TestEndsWithItsAgent: nothing inside outlives who opened it, however that ends.
func TestEndsWithItsAgent(t *testing.T) {
	r := newRig(t)
	res := r.play(t, played{Config: r.config(), Namespaces: true, Scripts: []string{"(setsid sleep 4242 &) ; (setsid sleep 4242 &) ; true"}})
	if res.Error != "" {
		t.Fatal(res.Error)
	}
	if out, _ := exec.Command("pgrep", "-u", fmt.Sprint(testUser), "-f", "sleep 4242").Output(); len(out) > 0 {
		t.Errorf("still there: %s", out)
	}
	for _, dir := range []string{r.path("root"), r.path("secret")} {
		if entries, err := os.ReadDir(dir); err != nil || dir == r.path("root") && len(entries) > 0 {
			t.Errorf("%s: %v %v: a mount was left", dir, entries, err)
		}
	}
}
