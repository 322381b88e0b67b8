package container

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/netpolicy"
)

// Later layers win, each name comes once, and nothing configured changes who the agent is (CT-8).
func TestEnvironment(t *testing.T) {
	l := launch{
		spec: backend.Spec{
			AgentID: "a1", Labels: []string{"linux", "x"}, Token: "kat_secret",
			Image: &backend.JobImage{Ref: "job"}, MinFreeDisk: 5,
		},
		set: backend.Set{
			Env:     map[string]string{"A": "set", "B": "set", "KICI_AGENT_ID": "set", "KICI_LABELS": "set", "KICI_AGENT_TOKEN": "set", "KICI_MIN_FREE_DISK_BYTES": "1"},
			Options: backend.Options{keyImage: "pool", "backpressureMode": "drop"},
		},
		host: backend.Host{Environ: []string{"KICI_AGENT_ENV_A=host", "KICI_AGENT_ENV_B=host", "KICI_AGENT_ENV_C=host", "KICI_AGENT_ENV_KICI_AGENT_TOKEN=host", "PATH=/x", "KICI_SECRET_KEY=s"}},
		url:  "unix:///x",
	}
	want := []string{
		"A=set", "B=set", "C=host", "KICI_AGENT_ID=a1", "KICI_AGENT_TOKEN_FD=0", "KICI_BACKPRESSURE_MODE=drop", "KICI_EXECUTION_MODE=bare-metal",
		"KICI_JOB_IMAGE_AGENT=1", "KICI_LABELS=linux,x", "KICI_MIN_FREE_DISK_BYTES=5", "KICI_ORCHESTRATOR_URL=unix:///x", "KICI_RUNTIME_IMAGE=pool", "KICI_SCALER_MANAGED=1",
		"KICI_WORK_DIR=/.kici/work/agents",
	}
	if got := l.environment(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestMountsAndBinds(t *testing.T) {
	l := launch{
		spec: backend.Spec{AgentID: "a1"}, engine: endpoint{URL: "unix:///run/e.sock"}, program: "/opt/kici", socket: "/data/agent",
		set: backend.Set{Options: backend.Options{keyVolumes: []string{"/c:/c"}, keyOwnSocket: true}},
	}
	h := l.hostConfig()
	if !slices.Equal(h.Binds, []string{"/c:/c", "/run/e.sock:/run/e.sock"}) {
		t.Errorf("binds %v", h.Binds)
	}
	if len(h.Mounts) != 2 || h.Mounts[0].Target != programPath || !h.Mounts[0].ReadOnly || h.Mounts[1].Target != serverFolder || !h.Mounts[1].ReadOnly {
		t.Errorf("mounts %+v", h.Mounts)
	}
	if h.Memory != 0 || h.NanoCPUs != 0 || *h.PidsLimit != pidsLimit {
		t.Errorf("limits %+v", h.Resources)
	}
	if len(l.set.Options.Strings(keyVolumes)) != 1 {
		t.Error("the configuration was changed")
	}
}

func TestFate(t *testing.T) {
	for _, c := range []struct {
		state container.State
		limit int64
		want  string
	}{
		{container.State{Status: "exited", ExitCode: 3}, 0, "exited with 3"},
		{container.State{Status: "exited"}, 0, "exited with 0"},
		{container.State{Status: "exited", ExitCode: 137, OOMKilled: true}, 512 << 20, "killed: out of memory (limit 512 MiB)"},
		{container.State{Status: "exited", ExitCode: 137, OOMKilled: true}, 0, "killed: out of memory"},
		{container.State{Status: "stopped", ExitCode: 137}, 512 << 20, "killed by SIGKILL (limit 512 MiB); out of memory, perhaps: this engine does not say"},
		{container.State{Status: "exited", ExitCode: 137}, 0, "killed by SIGKILL"},
		{container.State{Status: "exited", ExitCode: 137}, 512 << 20, "killed by SIGKILL"},
		{container.State{Status: "exited", ExitCode: 143}, 1, "killed by SIGTERM"},
		{container.State{Status: "exited", ExitCode: 170}, 1, "killed by signal 42"},
		{container.State{Status: "created"}, 0, "the container was never started"},
		{container.State{Status: "created", ExitCode: 127, Error: "no such file"}, 0, "no such file"},
	} {
		in := container.InspectResponse{State: &c.state, HostConfig: &container.HostConfig{}}
		in.HostConfig.Memory = c.limit
		if got := fate(in, c.state.Status == "stopped"); got != c.want {
			t.Errorf("%+v: %q, want %q", c.state, got, c.want)
		}
	}
}

func TestUnstarted(t *testing.T) {
	for _, c := range []struct {
		status container.ContainerState
		code   int
		want   bool
	}{
		{"created", 0, true},
		{"created", 127, true},
		{"initialized", 0, true},
		{"configured", 0, true},
		{"exited", 77, true},
		{"stopped", 77, true},
		{"exited", 0, false},
		{"exited", 137, false},
		{"running", 77, false},
		{"dead", 0, false},
		{"removing", 0, false},
	} {
		if got := unstarted(&container.State{Status: c.status, ExitCode: c.code}); got != c.want {
			t.Errorf("%s %d: %v", c.status, c.code, got)
		}
	}
}

func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	auth := func(s string) string { return `{"auth":"` + base64.StdEncoding.EncodeToString([]byte(s)) + `"}` }
	main := file("main", `{"auths":{"https://index.docker.io/v1/":`+auth("hub:p:w")+`,"r.example.com:5000":`+auth("r:x")+`,"q.io/team":`+auth("team:x")+`,"q.io":`+auth("q:x")+`,"empty.io":{}}}`)
	other := file("other", `{"auths":{"o.io":`+auth("o:x")+`},"credsStore":"desktop","credHelpers":{"h.io":"cloud"}}`)
	ask := func(helper, server string) credentials {
		switch helper + " " + server {
		case "cloud h.io":
			return credentials{Token: "t"}
		case "desktop s.io", "desktop o.io":
			return credentials{Username: "store", Password: "x"}
		}
		return credentials{}
	}
	files := []string{filepath.Join(dir, "none"), main, other}
	for image, want := range map[string]credentials{
		"golang:1.26": {"hub", "p:w", ""}, "library/golang": {"hub", "p:w", ""}, "docker.io/me/x": {"hub", "p:w", ""}, "r.example.com:5000/a/b:1": {"r", "x", ""},
		"q.io/team/a": {"team", "x", ""}, "q.io/other/a": {"q", "x", ""}, "o.io/a": {"store", "x", ""}, "s.io/a": {"store", "x", ""}, "h.io/a": {Token: "t"}, "empty.io/a": {}, "unknown.io/a": {}, "r.example.com/a": {},
	} {
		if got, err := lookupCredentials(image, files, ask); err != nil || got != want {
			t.Errorf("%s: %+v, %v", image, got, err)
		}
	}
	for name, text := range map[string]string{"json": "{", "base64": `{"auths":{"x.io":{"auth":"%"}}}`, "colon": `{"auths":{"x.io":{"auth":"eA=="}}}`} {
		if _, err := lookupCredentials("x.io/a", []string{file(name, text)}, ask); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHelpers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the helpers of this test are scripts")
	}
	dir := t.TempDir()
	for name, script := range map[string]string{
		"good": `read s; echo "{\"ServerURL\":\"$s\",\"Username\":\"me\",\"Secret\":\"$s\"}"`, "token": `echo '{"Username":"<token>","Secret":"t"}'`,
		"none": `echo "credentials not found in native keychain"; exit 1`, "bad": `echo "no keychain"; exit 2`, "mute": `echo secret`, "endless": `yes`,
	} {
		if err := os.WriteFile(filepath.Join(dir, "docker-credential-"+name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	environ := []string{"PATH=relative:" + dir + string(os.PathListSeparator) + os.Getenv("PATH")}
	for _, c := range []struct {
		helper string
		want   credentials
		fault  string
	}{
		{"good", credentials{Username: "me", Password: "r.io"}, ""},
		{"token", credentials{Token: "t"}, ""},
		{"none", credentials{}, ""},
		{"bad", credentials{}, "no keychain"},
		{"mute", credentials{}, "no JSON"},
		{"endless", credentials{}, "docker-credential-endless"},
		{"missing", credentials{}, "is not on the server's PATH"},
		{"../bin/sh", credentials{}, "no name of a credential helper"},
	} {
		got, err := askHelper(t.Context(), environ, c.helper, "r.io")
		if got != c.want || (err != nil) != (c.fault != "") || err != nil && (!strings.Contains(err.Error(), c.fault) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %+v, %v", c.helper, got, err)
		}
	}
}

func TestLastLines(t *testing.T) {
	for in, want := range map[string]int{"": 0, "\n\n": 0, "a": 1, "a\nb\n": 2, strings.Repeat("x\n", 80): maxTailLines, "\xff\n": 1} {
		if got := lastLines(in); len(got) != want {
			t.Errorf("%.10q: %d lines", in, len(got))
		}
	}
}

func TestLoopback(t *testing.T) {
	for url, want := range map[string]bool{
		"ws://127.0.0.1:4000/ws": true, "ws://localhost/ws": true, "ws://[::1]:1": true, "ws://0.0.0.0:1": true, "wss://ci.example.com/ws": false, "ws://10.0.0.1:1": false, "unix:///x": false,
	} {
		if loopback(url) != want {
			t.Errorf("%s: %v", url, !want)
		}
	}
}

// What an agent may reach is resolved once, at its launch, and kept with its container (HA-7). One that has the server's socket gets no
// port of this machine for it.
func TestRulesAreKeptWithTheContainer(t *testing.T) {
	addr := netip.MustParseAddr("172.30.0.9")
	policy := netpolicy.Policy{Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, DenyAll: true}
	for _, socket := range []bool{true, false} {
		text := rulesOf(backend.Spec{URL: "ws://10.9.8.7:4000/ws"}, policy, socket).encode()
		got, err := decodeRules(string(text), "a1", addr)
		if err != nil || got.Agent != "a1" || got.Addr != addr || !got.DenyAll || !slices.Equal(got.Allow, policy.Allow) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		port := slices.ContainsFunc(got.HostAccess, func(a netpolicy.Access) bool { return a.Port == 4000 })
		if port == socket {
			t.Errorf("with a socket %v: %v", socket, got.HostAccess)
		}
		for _, a := range got.Resolvers {
			if !slices.Contains(got.HostAccess, netpolicy.Access{To: netip.PrefixFrom(a, 32), Port: 53}) {
				t.Errorf("resolver %s is closed if it is this machine: %v", a, got.HostAccess)
			}
		}
	}
	if r := rulesOf(backend.Spec{}, netpolicy.Policy{HostAccess: []netpolicy.Access{}}, true); len(r.HostAccess) != 0 { // XS-107
		t.Errorf("an empty list opened %v", r.HostAccess)
	}
	if _, err := decodeRules("{", "a1", addr); err == nil {
		t.Error("a broken label is taken")
	}
}

func TestResolvers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	text := "# nameserver 1.1.1.1\nnameserver 127.0.0.53\nnameserver 10.0.0.2\nnameserver fd00::1\nnameserver 10.0.0.2\nsearch x\nnameserver 8.8.8.8\nnameserver 9.9.9.9\nnameserver 4.4.4.4\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range resolvers([]string{"/none", path}) {
		got = append(got, a.String())
	}
	if want := "10.0.0.2 8.8.8.8 9.9.9.9"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// The tar of kici's own files is whole for programs of any size.
func TestOwnFiles(t *testing.T) {
	for _, size := range []int{-1, 0, 1, 511, 512, 513, 1 << 16} {
		var program *os.File
		if size >= 0 {
			path := filepath.Join(t.TempDir(), "program")
			if err := os.WriteFile(path, bytes.Repeat([]byte("x"), size), 0o600); err != nil {
				t.Fatal(err)
			}
			var err error
			if program, err = os.Open(path); err != nil {
				t.Fatal(err)
			}
			defer program.Close()
		}
		content, err := ownFiles(program)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for r := tar.NewReader(content); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			data, err := io.ReadAll(r)
			if err != nil || h.Typeflag == tar.TypeReg && len(data) != size {
				t.Errorf("%d bytes: %s has %d, %v", size, h.Name, len(data), err)
			}
			got = append(got, fmt.Sprintf("%s %o", h.Name, h.Mode))
		}
		want := []string{".kici/ 755", ".kici/work/ 777"}
		if size >= 0 {
			want = append(want, ".kici/kici 755")
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d bytes: %v", size, got)
		}
	}
}
