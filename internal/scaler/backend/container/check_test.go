package container

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/netpolicy"
)

// hostWith has usable sockets at these paths.
func hostWith(sockets ...string) facts {
	return facts{
		goos: "linux", getenv: func(name string) string { return map[string]string{"XDG_RUNTIME_DIR": "/run/user/1000"}[name] },
		usable: func(path string) error {
			if slices.Contains(sockets, path) {
				return nil
			}
			return fmt.Errorf("%s: no such file", path)
		},
	}
}

const (
	dockerSocket   = "/var/run/docker.sock"
	podmanSocket   = "/run/podman/podman.sock"
	rootlessSocket = "/run/user/1000/podman/podman.sock"
)

// XS-75, CT-1.
func TestXS75ChooseEngine(t *testing.T) {
	for _, c := range []struct {
		name    string
		options backend.Options
		sockets []string
		want    endpoint
		fails   string
	}{
		{"docker first", nil, []string{dockerSocket, podmanSocket}, endpoint{"unix://" + dockerSocket, false}, ""},
		{"podman next", nil, []string{podmanSocket, rootlessSocket}, endpoint{"unix://" + podmanSocket, true}, ""},
		{"the user's own", nil, []string{rootlessSocket}, endpoint{"unix://" + rootlessSocket, true}, ""},
		{"only podman is meant", backend.Options{keyRuntime: "podman"}, []string{dockerSocket, rootlessSocket}, endpoint{"unix://" + rootlessSocket, true}, ""},
		{"only docker is meant", backend.Options{keyRuntime: "docker"}, []string{podmanSocket}, endpoint{}, "install Docker or Podman"},
		{"auto", backend.Options{keyRuntime: "auto"}, []string{podmanSocket}, endpoint{"unix://" + podmanSocket, true}, ""},
		{"none", nil, nil, endpoint{}, "install Docker or Podman"},
		{"a path", backend.Options{keySocket: "/x/podman.sock"}, []string{"/x/podman.sock"}, endpoint{"unix:///x/podman.sock", true}, ""},
		{"a path of docker", backend.Options{keySocket: "/x/d.sock"}, []string{"/x/d.sock"}, endpoint{"unix:///x/d.sock", false}, ""},
		{"a path where nothing is", backend.Options{keySocket: "/x/d.sock"}, nil, endpoint{"unix:///x/d.sock", false}, "no such file"},
		{"half a path", backend.Options{keySocket: "d.sock"}, nil, endpoint{"unix://d.sock", false}, "absolute"},
		{"elsewhere", backend.Options{keyHost: "tcp://h:2376"}, nil, endpoint{"tcp://h:2376", false}, ""},
		{"podman elsewhere", backend.Options{keyHost: "tcp://h:1", keyRuntime: "podman"}, nil, endpoint{"tcp://h:1", true}, ""},
		{"no address", backend.Options{keyHost: "h:2376"}, nil, endpoint{"h:2376", false}, "write tcp://host:port"},
		{"a socket as host", backend.Options{keyHost: "unix:///var/run/docker.sock"}, nil, endpoint{"unix:///var/run/docker.sock", false}, "use socketPath"},
	} {
		got, err := choose(c.options, hostWith(c.sockets...))
		if got != c.want || (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

func TestCheck(t *testing.T) {
	set := func(o backend.Options) []backend.Set { return []backend.Set{{Key: "linux", Options: o}} }
	good := set(backend.Options{keyImage: "golang:1.26"})
	f := hostWith(dockerSocket)
	for _, c := range []struct {
		name  string
		entry backend.Entry
		facts facts
		want  string // "key: part of the message", "" for nothing wrong
	}{
		{"good", backend.Entry{Sets: good}, f, ""},
		{"everything", backend.Entry{
			Options: backend.Options{keyExtraHosts: []string{"a:10.0.0.1", "b:host-gateway", "c:[fd00::1]"}, keyRuntime: "docker", keySocket: dockerSocket, keyImageAge: "36h", keyImageSize: "20g"},
			Sets: set(backend.Options{
				keyImage: "r.example.com:5000/a/b@sha256:" + strings.Repeat("0", 64), keyPull: "Never", keyOwnSocket: true,
				keyVolumes: []string{"/a:/b", "/a:/b:ro", "cache:/c:rw,z"},
			}),
		}, f, ""},
		{"XS-75", backend.Entry{Sets: good}, hostWith(), "runtime: install Docker or Podman"},
		{"unknown runtime", backend.Entry{Options: backend.Options{keyRuntime: "lxc"}, Sets: good}, f, "runtime: no runtime"},
		{"no such socket", backend.Entry{Options: backend.Options{keySocket: "/x"}, Sets: good}, f, "socketPath: no such file"},
		{"two engines", backend.Entry{Options: backend.Options{keySocket: dockerSocket, keyHost: "tcp://h:1", keyIsolation: false}, Sets: good}, f, "host: two engines"},
		{"CT-4: isolation elsewhere", backend.Entry{Options: backend.Options{keyHost: "tcp://h:1"}, Sets: good}, f, "host: cannot protect"},
		{"elsewhere", backend.Entry{Options: backend.Options{keyHost: "tcp://h:1", keyIsolation: false}, Sets: good}, hostWith(), ""},
		{"bad host", backend.Entry{Options: backend.Options{keyHost: "ssh://h", keyIsolation: false}, Sets: good}, f, "host: no address"},
		{"bad extra host", backend.Entry{Options: backend.Options{keyExtraHosts: []string{"a"}}, Sets: good}, f, "extraHosts: name:address"},
		{"bad age of images", backend.Entry{Options: backend.Options{keyImageAge: "1h"}, Sets: good}, f, "imageMaxAge: at least 2h"},
		{"bad size of images", backend.Entry{Options: backend.Options{keyImageSize: "lots"}, Sets: good}, f, "imageMaxSize: memory must be"},
		{"not Linux", backend.Entry{Sets: good}, facts{goos: "darwin"}, "type: not for Linux"},
		{"no image: only jobs that name their own", backend.Entry{Sets: set(nil)}, f, ""},
		{"an empty image", backend.Entry{Sets: set(backend.Options{keyImage: ""})}, f, "labelSets[0].image: must not be empty"},
		{"a policy for no image", backend.Entry{Sets: set(backend.Options{keyPull: pullAlways})}, f, "labelSets[0].imagePullPolicy: does nothing"},
		{"bad image", backend.Entry{Sets: set(backend.Options{keyImage: "A B"})}, f, "labelSets[0].image: no name"},
		{"bad policy", backend.Entry{Sets: set(backend.Options{keyImage: "a", keyPull: "never"})}, f, "labelSets[0].imagePullPolicy: no pull policy"},
		{"bad volume", backend.Entry{Sets: set(backend.Options{keyImage: "a", keyVolumes: []string{"a"}})}, f, "labelSets[0].volumes: source:target"},
		{"no socket elsewhere", backend.Entry{
			Options: backend.Options{keyHost: "tcp://h:1", keyIsolation: false}, Sets: set(backend.Options{keyImage: "a", keyOwnSocket: true}),
		}, f, "labelSets[0].containerSocket: no socket"},
		{"own names", backend.Entry{Sets: []backend.Set{{Options: backend.Options{keyImage: "a"}, Env: map[string]string{"KICI_AGENT_ID": "x"}}}}, f, "labelSets[0].env: set by kici"},
		{"policy without isolation", backend.Entry{
			Options: backend.Options{keyIsolation: false}, Sets: []backend.Set{{Options: backend.Options{keyImage: "a"}, Network: netpolicy.Policy{DenyAll: true}}},
		}, f, "labelSets[0].networkPolicy: not enforced"},
	} {
		var got []string
		for _, f := range check(c.entry, c.facts) {
			got = append(got, f.Key+": "+f.Message)
		}
		key, part, _ := strings.Cut(c.want, ": ")
		switch {
		case c.want == "" && len(got) > 0, c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], key+": ") || !strings.Contains(got[0], part)):
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestCheckVolume(t *testing.T) {
	for _, good := range []string{"/a:/b", "cache:/b", "/a:/b:ro", "/a:/b/../c", "a.b-c_d:/x:rw,nocopy"} {
		if err := checkVolume(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "/a", "a", "/a:", ":/b", "/a:b", "./a:/b", "../a:/b", "/a:/", "/a:/.kici", "/a:/.kici/kici", "/a:/x/../.kici", "/a:/b:exec", "/a:/b:", "/a:/b:ro:x", "a/b:/c"} {
		if err := checkVolume(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestErrorsByWhatPolicyNeeds(t *testing.T) {
	for text, want := range map[string]error{
		"write /x: no space left on device":                                     backend.ErrInfra,
		"fork/exec: Cannot allocate memory":                                     backend.ErrNoCapacity,
		"no available IPv4 addresses on this network's address pools: x":        backend.ErrNoCapacity,
		"dial unix /x: connect: connection refused":                             backend.ErrNotReady,
		"OCI runtime create failed: exec: \"/.kici/kici\": permission denied":   backend.ErrRefused,
		"Error response from daemon: anything that is not known: some new text": backend.ErrRefused,
	} {
		if got := hostError(errors.New(text), backend.ErrRefused); !errors.Is(got, want) || strings.Contains(got.Error(), "daemon: ") {
			t.Errorf("%s: %v", text, got)
		}
	}
	for text, want := range map[string]error{
		"manifest for x:1 not found: manifest unknown":            backend.ErrRefused,
		"pull access denied for x, repository does not exist":     backend.ErrRefused,
		"unauthorized: authentication required":                   backend.ErrRefused,
		"no matching manifest for linux/amd64":                    backend.ErrRefused,
		"Get \"http://127.0.0.1:1/v2/\": connection refused":      backend.ErrInfra,
		"write /var/lib/docker/tmp/x: no space left on device":    backend.ErrInfra,
		"toomanyrequests: You have reached your pull rate limit.": backend.ErrInfra,
		"unexpected EOF": backend.ErrInfra,
	} {
		if got := pullError(errors.New(text), "x:1"); !errors.Is(got, want) || !strings.Contains(got.Error(), "x:1") {
			t.Errorf("%s: %v", text, got)
		}
	}
}
