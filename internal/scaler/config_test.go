package scaler

import (
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/scaler/backend"
)

func testKinds() []backend.Kind {
	return []backend.Kind{{
		Type: "bare-metal", HostPlatform: true,
		Keys:    []backend.Key{{Name: "runAs", Type: backend.KeyString}, {Name: "allowRoot", Type: backend.KeyBool}, {Name: "workDir", Type: backend.KeyString}},
		SetKeys: []backend.Key{{Name: "binaryPath", Type: backend.KeyString}},
		Check: func(e backend.Entry) []backend.Fault {
			var out []backend.Fault
			for i, s := range e.Sets {
				if s.Options.String("binaryPath") == "/missing" {
					out = append(out, backend.Fault{Key: backend.SetKey(i, "binaryPath"), Message: "there is no such file"})
				}
			}
			return out
		},
	}}
}

func parse(t *testing.T, text string) (*Config, []Problem) {
	t.Helper()
	return ParseConfig("scalers.yaml", []byte(text), LoadOptions{Kinds: testKinds(), GOOS: "linux", GOARCH: "amd64"})
}

func TestDefaultConfigIsValid(t *testing.T) {
	for _, o := range []DefaultOptions{{CPUs: 4}, {CPUs: 1, RunAs: "nobody"}, {AllowRoot: true, Labels: []string{"arm64", "linux"}}} {
		c, problems := parse(t, DefaultConfig(o))
		if len(problems) > 0 && o.Labels == nil {
			t.Errorf("%+v: %v", o, problems)
		}
		if c == nil || c.Scalers[0].Name != "local" || c.Scalers[0].MaxAgents != max(2, int64(o.CPUs)*2) {
			t.Errorf("%+v: %+v", o, c)
		}
		if c != nil && (c.Scalers[0].Options.String("runAs") != o.RunAs || c.Scalers[0].Options.Bool("allowRoot") != o.AllowRoot) {
			t.Errorf("%+v: options %v", o, c.Scalers[0].Options)
		}
	}
}

func TestEveryFaultAtOnceWithItsPlace(t *testing.T) {
	_, problems := parse(t, `version: 1
globlMaxAgents: 5
defaults:
  resources: {memory: lots}
scalers:
  - name: a
    type: bare-metal
    maxAgents: 0
    labelSets:
      - labels: [linux, "kici:x"]
        binaryPath: /missing
        resource: {cpus: 1}
      - labels: []
  - type: firecracker
    name: vm
    maxAgents: 1
    kernelPath: /k
    labelSets: [{labels: [vm], rootfsPath: /r}]
  - name: b
    type: baremetal
    maxAgents: x
    labelSets: [{labels: [linux]}]
`)
	var got []string
	for _, p := range problems {
		got = append(got, p.Error())
	}
	want := []string{
		`scalers.yaml:2:1: globlMaxAgents: unknown key (did you mean "globalMaxAgents"?)`,
		`scalers.yaml:4:23: defaults.resources.memory: "lots": memory must be a number followed by k, m or g, such as 512m`,
		`scalers.yaml:8:16: scalers[0].maxAgents: must be a whole number from 1 to 2147483647`,
		`scalers.yaml:10:25: scalers[0].labelSets[0].labels[1]: labels that start with kici: are kici's own (choose another name)`,
		`scalers.yaml:11:21: scalers[0].labelSets[0].binaryPath: there is no such file`,
		`scalers.yaml:12:9: scalers[0].labelSets[0].resource: unknown key (did you mean "resources"?)`,
		`scalers.yaml:13:9: scalers[0].labelSets[1].labels: needs at least one label`,
		`scalers.yaml:14:11: scalers[1].type: the firecracker backend is not built yet (this version has bare-metal)`,
		`scalers.yaml:20:11: scalers[2].type: "baremetal" is not one of bare-metal, container, firecracker, event (did you mean "bare-metal"?)`,
		`scalers.yaml:21:16: scalers[2].maxAgents: must be a whole number from 1 to 2147483647`,
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}
