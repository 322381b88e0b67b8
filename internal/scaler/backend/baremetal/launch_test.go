package baremetal

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/scaler/backend"
)

func input() launchInput {
	return launchInput{
		binary: "/opt/kici", workDir: "/data/agents/a/work", goos: "linux",
		spec: backend.Spec{AgentID: "scaler-bare-metal-00000001", Labels: []string{"kici:scaler:x", "linux"}, Token: "kat_secret", URL: "ws://h/ws"},
		environ: []string{
			"PATH=/bin", "HOME=/home/ci", "SECRET=1", "KICI_SECRET_KEY=k", "KICI_DATABASE_URL=postgres://", "KICI_AGENT_ENV_PROXY=p",
			"KICI_AGENT_ENV_KICI_AGENT_ID=forged", "KICI_AGENT_TOKEN=kat_servers", "TMPDIR=/t", "SHELL=/bin/sh", "BROKEN",
		},
	}
}

// BM-5, BM-6: the launch is a pure function, and its layers are these.
func TestLaunchLayers(t *testing.T) {
	base := []string{
		"HOME=/home/ci", "KICI_AGENT_ID=scaler-bare-metal-00000001", "KICI_AGENT_MARK=scaler-bare-metal-00000001", "KICI_AGENT_TOKEN_FD=3",
		"KICI_EXECUTION_MODE=bare-metal", "KICI_LABELS=kici:scaler:x,linux", "KICI_ORCHESTRATOR_URL=ws://h/ws", "KICI_SCALER_MANAGED=1",
		"KICI_WORK_DIR=/data/agents/a/work", "PATH=/bin", "PROXY=p", "SHELL=/bin/sh", "TMPDIR=/t",
	}
	with := func(drop []string, add ...string) []string {
		out := slices.DeleteFunc(slices.Clone(base), func(kv string) bool {
			name, _, _ := strings.Cut(kv, "=")
			return slices.Contains(drop, name)
		})
		out = append(out, add...)
		slices.Sort(out)
		return out
	}
	cases := []struct {
		name   string
		change func(*launchInput)
		want   []string
	}{
		{"allow-list, forwarded, identity", func(*launchInput) {}, base},
		{"label set wins over forwarded, not over identity", func(in *launchInput) {
			in.setEnv = map[string]string{"PROXY": "mine", "KICI_AGENT_ID": "x", "KICI_ORCHESTRATOR_URL": "x", "KICI_SANDBOX": "true"}
		}, with([]string{"PROXY"}, "PROXY=mine", "KICI_SANDBOX=true")},
		{"trusted: the host's, but nothing of kici's", func(in *launchInput) {
			in.setEnv = map[string]string{"KICI_TRUSTED_ENV": "true"}
		}, with(nil, "SECRET=1")},
		{"trusted by forwarding", func(in *launchInput) {
			in.environ = append(in.environ, "KICI_AGENT_ENV_KICI_TRUSTED_ENV=true")
		}, with(nil, "SECRET=1")},
		{"another user", func(in *launchInput) {
			in.user = &account{name: "ci2", home: "/home/ci2"}
		}, with([]string{"HOME", "SHELL", "TMPDIR"}, "HOME=/home/ci2", "USER=ci2", "LOGNAME=ci2")},
		{"floor of the disk", func(in *launchInput) {
			in.spec.MinFreeDisk = 5
			in.setEnv = map[string]string{"KICI_MIN_FREE_DISK_BYTES": "1"}
		}, with(nil, "KICI_MIN_FREE_DISK_BYTES=5")},
		{"back-pressure mode", func(in *launchInput) { in.mode = "drop" }, with(nil, "KICI_BACKPRESSURE_MODE=drop")},
		{"windows names, whatever their case", func(in *launchInput) {
			in.goos = "windows"
			in.environ = append(in.environ, `SYSTEMROOT=C:\W`, `Path=C:\later`, `LocalAppData=L`, `kici_secret=x`)
			in.setEnv = map[string]string{"proxy": "mine", "kici_agent_id": "forged"}
		}, with([]string{"PATH", "PROXY"}, `PATH=C:\later`, `SYSTEMROOT=C:\W`, `LocalAppData=L`, "PROXY=mine")},
		{"windows, trusted", func(in *launchInput) {
			in.goos = "windows"
			in.environ = append(in.environ, `kici_secret=x`, `Other=1`)
			in.setEnv = map[string]string{"KICI_TRUSTED_ENV": "true"}
		}, with(nil, "SECRET=1", "Other=1")},
		{"a sandbox, which no label set loosens", func(in *launchInput) {
			in.box = &confinement{network: "isolated", paths: []string{"/sdk", "/cache:rw"}, hidden: "/data"}
			in.setEnv = map[string]string{"KICI_SANDBOX": "0", "KICI_SANDBOX_NETWORK": "host", "KICI_SANDBOX_PATHS": "/:rw", "KICI_SANDBOX_HIDDEN": "/x"}
		}, with(nil, "KICI_SANDBOX=1", "KICI_SANDBOX_HIDDEN=/data", "KICI_SANDBOX_NETWORK=isolated", "KICI_SANDBOX_PATHS=/sdk,/cache:rw")},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			in := input()
			c.change(&in)
			got := plan(in)
			if !slices.Equal(got.env, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got.env, "\n"), strings.Join(c.want, "\n"))
			}
			if !slices.Equal(got.args, []string{"/opt/kici", "agent"}) || got.path != "/opt/kici" || got.dir != in.workDir {
				t.Errorf("launch %+v", got)
			}
			if all := strings.Join(append(got.args, got.env...), " "); strings.Contains(all, "kat_") || strings.Contains(all, "KICI_SECRET_KEY") {
				t.Errorf("a secret is in %s", all)
			}
		})
	}
}

// A batch file is run by cmd.exe on Windows, and only there.
func TestLaunchOfABatchFile(t *testing.T) {
	in := input()
	in.goos, in.binary, in.environ = "windows", `C:\my agents\kici.cmd`, []string{`COMSPEC=C:\W\cmd.exe`}
	if got := plan(in); got.path != `C:\W\cmd.exe` || got.line != `C:\W\cmd.exe /d /e:on /v:off /c call "C:\my agents\kici.cmd" agent <NUL` {
		t.Errorf("launch %+v", got)
	}
	in.goos = "linux"
	if got := plan(in); got.path != in.binary || got.line != "" {
		t.Errorf("elsewhere %+v", got)
	}
}

// D14: whose agents are.
func TestWhoAgentsRunAs(t *testing.T) {
	users := map[string]*account{"ci": {name: "ci", uid: 1000, gid: 1000}, "root": {name: "root"}, "0": {name: "root"}}
	facts := func(uid int) facts {
		return facts{uid: uid, stat: os.Stat, lookup: func(n string) (*account, error) {
			if a := users[n]; a != nil {
				return a, nil
			}
			return nil, errors.New("unknown user")
		}}
	}
	cases := []struct {
		name    string
		uid     int
		options backend.Options
		user    string // '' = the server's own
		fault   string
	}{
		{"plain server", 1000, nil, "", ""},
		{"root server refuses", 0, nil, "", "set runAs to a user, or allowRoot to true"},
		{"root server, told so", 0, backend.Options{keyAllowRoot: true}, "", ""},
		{"root server, other user", 0, backend.Options{keyRunAs: "ci"}, "ci", ""},
		{"root server, root by name", 0, backend.Options{keyRunAs: "root"}, "", "is root"},
		{"root server, root by number", 0, backend.Options{keyRunAs: "0"}, "", "is root"},
		{"root server, root by name and told so", 0, backend.Options{keyRunAs: "root", keyAllowRoot: true}, "", ""},
		{"unknown user", 0, backend.Options{keyRunAs: "nope"}, "", "unknown user"},
		{"plain server, itself", 1000, backend.Options{keyRunAs: "ci"}, "", ""},
		{"plain server, somebody else", 1001, backend.Options{keyRunAs: "ci"}, "", "only a server that runs as root"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e := backend.Entry{Name: "x", Options: c.options}
			a, err := identity(e, facts(c.uid))
			got := ""
			if a != nil {
				got = a.name
			}
			if got != c.user || (err != nil) != (c.fault != "") || err != nil && !strings.Contains(err.Error(), c.fault) {
				t.Errorf("got %q, %v", got, err)
			}
			faults := check(e, facts(c.uid))
			if (len(faults) > 0) != (c.fault != "") {
				t.Errorf("check says %+v", faults)
			}
		})
	}
	if _, err := identity(backend.Entry{Retiring: true}, facts(0)); err != nil {
		t.Errorf("a retiring scaler starts nothing, yet: %v", err)
	}
}

func TestCheckSandbox(t *testing.T) {
	ci := &account{name: "ci", uid: 1000, gid: 1000}
	on := func(uid int, goos string) facts {
		return facts{uid: uid, goos: goos, lookup: func(string) (*account, error) { return ci, nil }, stat: func(path string) (fs.FileInfo, error) {
			if path == "/gone" {
				return nil, fs.ErrNotExist
			}
			return nil, nil
		}}
	}
	for _, c := range []struct {
		name    string
		facts   facts
		options backend.Options
		want    []string // keys; a warning has a mark
	}{
		{"a user without rights", on(0, "linux"), backend.Options{keyRunAs: "ci", keySandbox: true}, nil},
		{"a server without rights", on(1000, "linux"), backend.Options{keySandbox: true, keyNetwork: "host", keyPaths: []string{"/a", "/b:rw"}}, nil},
		{"root", on(0, "linux"), backend.Options{keyAllowRoot: true, keySandbox: true}, []string{keySandbox}},
		{"another system", on(1000, "darwin"), backend.Options{keySandbox: true}, []string{keySandbox}},
		{"bad values", on(1000, "linux"), backend.Options{keySandbox: true, keyNetwork: "none", keyPaths: []string{"rel", "/a,b", "/gone"}}, []string{keyNetwork, keyPaths, keyPaths, keyPaths}},
		{"keys without a sandbox", on(1000, "linux"), backend.Options{keyNetwork: "host", keyPaths: []string{"rel"}}, []string{keyNetwork + "?", keyPaths + "?"}},
	} {
		var got []string
		for _, f := range checkSandbox(backend.Entry{Options: c.options}, c.facts) {
			if f.Warning {
				f.Key += "?"
			}
			got = append(got, f.Key)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// BM-4: a label set's env alone asks for a sandbox too; the scaler's keys win over it.
func TestConfinementOf(t *testing.T) {
	byEnv := backend.Set{Env: map[string]string{sandboxName: "true", sandboxNetwork: "host"}}
	for _, c := range []struct {
		name    string
		options backend.Options
		set     backend.Set
		want    string // network, '' for no sandbox
	}{
		{"none", nil, backend.Set{}, ""},
		{"the set's env says no", nil, backend.Set{Env: map[string]string{sandboxName: "0"}}, ""},
		{"the key", backend.Options{keySandbox: true}, backend.Set{}, "isolated"},
		{"the set's env", nil, byEnv, "host"},
		{"the set's env, and a key for the network", backend.Options{keyNetwork: "isolated"}, byEnv, "isolated"},
	} {
		e := backend.Entry{Options: c.options, Sets: []backend.Set{c.set}}
		got := confinementOf(e, c.set, "/data")
		if (got == nil) != (c.want == "") || got != nil && (got.network != c.want || got.hidden != "/data") {
			t.Errorf("%s: %+v", c.name, got)
		}
		if confines(e) != (got != nil) {
			t.Errorf("%s: the entry as a whole says otherwise", c.name)
		}
	}
}

func TestCheckNamesTheKey(t *testing.T) {
	f := facts{uid: 1000, goos: "linux", stat: func(path string) (fs.FileInfo, error) { return os.Stat(path) }}
	e := backend.Entry{
		Options: backend.Options{keyWorkDir: "relative", keyTasks: int64(3)},
		Sets: []backend.Set{
			{Options: backend.Options{keyImage: "debian"}},
			{Options: backend.Options{keyBinary: "/does/not/exist"}, Env: map[string]string{"KICI_AGENT_TOKEN": "x"}},
			{Options: backend.Options{keyBinary: "agent"}},
			{Options: backend.Options{keyBinary: "/etc/passwd"}},
		},
	}
	var got []string
	for _, x := range check(e, f) {
		kind := "fault"
		if x.Warning {
			kind = "warning"
		}
		got = append(got, kind+" "+x.Key)
	}
	want := []string{
		"fault workDir", "fault maxTasks", "warning maxTasks", "fault labelSets[0].image", "fault labelSets[1].binaryPath", "fault labelSets[1].env",
		"fault labelSets[2].binaryPath", "fault labelSets[3].binaryPath",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
