package scaler

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/placement"
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
	return ParseConfig("scalers.yaml", []byte(text), LoadOptions{Kinds: testKinds()})
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
		`scalers.yaml:20:11: scalers[2].type: "baremetal" is not one of bare-metal, firecracker, event (did you mean "bare-metal"?)`,
		`scalers.yaml:21:16: scalers[2].maxAgents: must be a whole number from 1 to 2147483647`,
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

// want checks one problem by the words in it; warnings are marked so.
func expect(t *testing.T, text, words string, warning bool) {
	t.Helper()
	c, problems := parse(t, text)
	if warning != (c != nil) {
		t.Errorf("configuration %v with %v", c, problems)
	}
	for _, p := range problems {
		if p.Warning == warning && strings.Contains(p.Error(), words) {
			return
		}
	}
	t.Errorf("nothing says %q: %v", words, problems)
}

func entry(more string) string {
	return "version: 1\nscalers:\n  - name: a\n    type: bare-metal\n    maxAgents: 2\n" + more
}

func TestXS1InvalidConfigNamesPathAndKey(t *testing.T) {
	expect(t, "version: 2\nscalers: []\n", "scalers.yaml:1:10: version: must be 1", false)
	expect(t, "scalers: [}\n", "scalers.yaml:1:1:", false)
	expect(t, "", "the file is empty", false)
	expect(t, "version: 1\n", "scalers: is required (add at least one scaler)", false)
	_, problems := LoadConfig("/does/not/exist.yaml", LoadOptions{})
	if len(problems) != 1 || !strings.Contains(problems[0].Error(), "no such file") {
		t.Errorf("got %v", problems)
	}
}

func TestXS2SameLabelSetInTwoScalers(t *testing.T) {
	two := entry("    labelSets: [{labels: [Linux, x64]}, {labels: [linux, x64]}]\n") +
		"  - {name: b, type: bare-metal, maxAgents: 1, labelSets: [{labels: [x64, linux]}]}\n"
	expect(t, two, "label set [linux,x64] is offered by both a and b", false)
	c, problems := parse(t, entry("    labelSets: [{labels: [linux, x64]}, {labels: [x64, linux]}]\n"))
	if c == nil || len(problems) > 0 {
		t.Errorf("duplicates inside one scaler are allowed: %v", problems)
	}
	expect(t, entry("    labelSets: [{labels: [a]}]\n")+"  - {name: A, type: bare-metal, maxAgents: 1, labelSets: [{labels: [b]}]}\n", "two scalers named A", false)
}

// A scaler whose set has no image of its own, as containers may (BM-1, BM-2): it has no pool, and its labels may be those of a scaler for all
// other jobs.
func TestSetsForJobsWithAnImage(t *testing.T) {
	boxes := backend.Kind{Type: "box", SetKeys: []backend.Key{{Name: "image", Type: backend.KeyString}}, Images: func(set backend.Options) backend.ImageUse {
		if set.String("image") == "" {
			return backend.OnlyImages
		}
		return backend.AnyImage
	}}
	kinds := append(testKinds(), boxes)
	const only = "  - {name: box, type: box, maxAgents: 1, labelSets: [{labels: [linux]}]}\n"
	const both = "  - {name: box, type: box, maxAgents: 1, labelSets: [{labels: [linux], image: go}]}\n"
	for _, c := range []struct{ name, text, want string }{
		{"the same labels, one for jobs with an image", entry("    labelSets: [{labels: [linux]}]\n") + only, ""},
		{"the same labels for jobs without", entry("    labelSets: [{labels: [linux]}]\n") + both, "is offered by both a and box"},
		{"the same labels for jobs with", entry("    labelSets: [{labels: [other]}]\n") + both + strings.Replace(only, "box,", "box2,", 1), "is offered by both box and box2"},
		{"a pool of it", entry("    labelSets: [{labels: [other]}]\n") + "  - {name: box, type: box, maxAgents: 1, warmPool: {enabled: true, size: 1}, " +
			"labelSets: [{labels: [linux], resources: {cpus: 1}}]}\n", "label set 0 has no image"},
	} {
		config, problems := ParseConfig("scalers.yaml", []byte(c.text), LoadOptions{Kinds: kinds})
		if text := fmt.Sprint(problems); (c.want == "") != (len(problems) == 0) || !strings.Contains(text, c.want) {
			t.Errorf("%s: %s", c.name, text)
		}
		if config == nil {
			continue
		}
		for i, only := range []bool{false, true} {
			e := &config.Scalers[i]
			kind := kinds[slices.IndexFunc(kinds, func(k backend.Kind) bool { return k.Type == e.Type })]
			if got := e.offers(kind, Platform{"linux", "amd64"})[0].OnlyImages; got != only {
				t.Errorf("scaler %s is only for jobs with an image: %v", e.Name, got)
			}
		}
	}
}

func TestMisspeltType(t *testing.T) {
	for key, want := range map[string]string{"typ": `did you mean "type"?`, "tpye": `did you mean "type"?`} {
		_, problems := parse(t, "version: 1\nscalers:\n  - {name: a, "+key+": bare-metal, maxAgents: 1, runAs: ci, labelSets: [{labels: [b]}]}\n")
		if len(problems) != 1 || problems[0].Message != "unknown key" || problems[0].Cure != want || problems[0].Line != 3 {
			t.Errorf("%s: %v", key, problems)
		}
	}
	expect(t, "version: 1\nscalers:\n  - {name: a, maxAgents: 1, labelSets: [{labels: [b]}]}\n", "type: is required", false)
}

func TestXS3GateAbsentFromASet(t *testing.T) {
	expect(t, entry("    mandatoryLabels: [gpu]\n    labelSets: [{labels: [gpu, linux]}, {labels: [linux]}]\n"),
		`scaler a: mandatory label "gpu" is not among the labels of label set 1`, false)
	c, problems := parse(t, entry("    platform: {os: macos, arch: arm64}\n    labelSets: [{labels: [build]}]\n"))
	if c == nil || len(problems) > 0 {
		t.Fatalf("taints are requestable: %v", problems)
	}
	set := c.Scalers[0].offers(testKinds()[0], Platform{"linux", "amd64"})[0]
	if strings.Join(set.Gate, ",") != "arm64,macos" || strings.Join(set.AgentLabels, ",") != "arm64,build,kici:agent:bare-metal,kici:role:builder,kici:role:init-runner,kici:scaler:a,macos" {
		t.Errorf("set %+v", set)
	}
	if !strings.Contains(strings.Join(set.Enriched, ","), "kici:os:darwin,kici:os:macos") {
		t.Errorf("enriched %v", set.Enriched)
	}
	expect(t, entry("    labelSets: [{labels: [macos]}]\n"), "macos is taken as a platform that jobs must name", true)
}

// A pool carries its host's labels, and a gate only where its platform is declared: on an arm64 machine the first scalers.yaml runs
// what says just "linux", as the demo does.
func TestHostPlatformIsNoGate(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		c, problems := ParseConfig("scalers.yaml", []byte(DefaultConfig(DefaultOptions{CPUs: 2, Labels: []string{"linux"}})),
			LoadOptions{Kinds: testKinds()})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		set := c.Scalers[0].offers(testKinds()[0], Platform{"linux", arch})[0]
		if len(set.Gate) > 0 || !slices.Contains(set.Enriched, "kici:arch:"+arch) || !slices.Contains(set.Enriched, "kici:os:linux") || !slices.Contains(set.Enriched, "linux") {
			t.Errorf("%s: %+v", arch, set)
		}
		if slices.ContainsFunc(set.Enriched, func(l string) bool { return strings.HasSuffix(l, ":") }) {
			t.Errorf("%s: an empty label: %v", arch, set.Enriched)
		}
		in := placement.Snapshot{
			Now: 1, Nodes: []placement.Node{{ID: "n", Name: "n", Live: true, GlobalMaxAgents: 2}},
			Scalers: []placement.Scaler{{NodeID: "n", Name: "local", Type: "bare-metal", Ready: true, MaxAgents: 2, LabelSets: []placement.LabelSet{set}}},
			Shapes:  []placement.Shape{{Key: "s", OrgID: "o", Labels: []string{"linux"}, Jobs: []placement.Job{{ID: "j"}}, Total: 1}},
		}
		if out := placement.Decide(in); len(out.Launch) != 1 {
			t.Errorf("%s: a job for linux is not launched: %+v", arch, out)
		}
	}
	c, _ := ParseConfig("scalers.yaml", []byte(entry("    platform: {arch: arm64}\n    labelSets: [{labels: [linux]}]\n")),
		LoadOptions{Kinds: testKinds()})
	if set := c.Scalers[0].offers(testKinds()[0], Platform{"linux", "amd64"})[0]; strings.Join(set.Gate, ",") != "arm64" {
		t.Errorf("a declared platform is no gate: %+v", set)
	}
}

func TestXS4PoolWithoutResources(t *testing.T) {
	pool := "    warmPool: {enabled: true, size: 2}\n"
	expect(t, entry(pool+"    labelSets: [{labels: [linux]}]\n"), "the warm pool is off", true)
	c, _ := parse(t, entry(pool+"    labelSets: [{labels: [linux]}]\n"))
	if c.Scalers[0].WarmPool.Enabled {
		t.Error("the pool is on")
	}
}

func TestXS5Resources(t *testing.T) {
	set := func(r string) string { return entry("    labelSets: [{labels: [linux], resources: " + r + "}]\n") }
	expect(t, set("{memory: 5x}"), "labelSets[0].resources.memory", false)
	expect(t, set("{cpus: 0}"), "cpus must be above 0", false)
	expect(t, set("{cpus: many}"), "must be a number", false)
	expect(t, set("{requests: {cpus: 4}, limits: {cpus: 2}}"), "requests more cpus than its limit", false)
	expect(t, set("{cpus: 1, limits: {cpus: 2}}"), "cannot stand beside", false)
	expect(t, "version: 1\nglobalResourceCap: {maxMemory: x}\nscalers: []\n", "globalResourceCap.maxMemory", false)
	for text, want := range map[string]string{
		"{cpus: 1.5, memory: 2G}":                              "1500 2147483648 1500 2147483648",
		"{requests: {cpus: 1}}":                                "1000 0 1000 0",
		"{limits: {memory: 1k}}":                               "0 1024 0 1024",
		"{requests: {cpus: 1}, limits: {cpus: 2, memory: 1m}}": "1000 1048576 2000 1048576",
		"{}": "250 0 250 0",
	} {
		c, problems := parse(t, strings.Replace(set(text), "scalers:", "defaults: {resources: {cpus: 0.25}}\nscalers:", 1))
		if c == nil {
			t.Errorf("%s: %v", text, problems)
			continue
		}
		r := c.Scalers[0].LabelSets[0].Resources
		got := fmt.Sprint(r.Requests.CPUMilli, r.Requests.MemBytes, r.Limits.CPUMilli, r.Limits.MemBytes)
		if strings.Contains(text, "limits: {memory") {
			want = "250 1024 250 1024" // the dimension that nobody gave comes from the defaults
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestRolesBecomeLabels(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "kici:role:builder,kici:role:init-runner",
		"    roles: []\n":            "",
		"    roles: [all]\n":         "kici:role:builder,kici:role:init-runner",
		"    roles: [init-runner]\n": "kici:role:init-runner",
	} {
		c, problems := parse(t, entry(text+"    labelSets: [{labels: [linux]}]\n"))
		if c == nil {
			t.Fatal(problems)
		}
		var got []string
		for _, l := range c.Scalers[0].offers(testKinds()[0], Platform{"linux", "amd64"})[0].AgentLabels {
			if strings.HasPrefix(l, "kici:role:") {
				got = append(got, l)
			}
		}
		if strings.Join(got, ",") != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestFragments(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	main := write("main", "version: 1\nglobalMaxAgents: 7\n")
	write("b.yaml", "scalers: [{name: b, type: bare-metal, maxAgents: 1, labelSets: [{labels: [b]}]}]\n")
	write("a.yml", "globalMaxAgents: 1\nscalers: [{name: a, type: bare-metal, maxAgents: 1, labelSets: [{labels: [a]}]}]\n")
	write("c.txt", "{")
	c, problems := LoadConfig(main, LoadOptions{Dir: dir, Kinds: testKinds()})
	if c == nil || len(c.Scalers) != 2 || c.Scalers[0].Name != "a" || c.GlobalMaxAgents != 7 {
		t.Fatalf("got %+v: %v", c, problems)
	}
	if len(problems) != 1 || !problems[0].Warning || !strings.Contains(problems[0].Error(), "a.yml:1:18: globalMaxAgents: a fragment gives scalers only") {
		t.Errorf("got %v", problems)
	}
	write("d.yaml", "scalers: [{name: b, type: bare-metal, maxAgents: 1, labelSets: [{labels: [d]}]}]\n")
	if c, problems := LoadConfig(main, LoadOptions{Dir: dir, Kinds: testKinds()}); c != nil || !strings.Contains(Errors(problems).Error(), "d.yaml:1:11: scalers[0]: there are two scalers named b (the first is in "+dir) {
		t.Errorf("got %v", problems)
	}
}

func TestHostileConfigIsHarmless(t *testing.T) {
	for _, text := range []string{
		"a: &a [*a]\nversion: 1\nscalers: *a\n",
		"version: 1\nscalers: &s\n  - *s\n",
		"version: 1\nscalers: [[[[[[[]]]]]]]\n",
		"version: 1\nscalers: {a: b}\n",
		"version: 1\nscalers: [1, null, {name: [], type: {}, maxAgents: [], labelSets: {}}]\n",
		"<<: {version: 1}\n",
		strings.Repeat("[", 5000),
	} {
		if c, problems := parse(t, text); c != nil || len(problems) == 0 {
			t.Errorf("%.40q: %v %v", text, c, problems)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(DefaultConfig(DefaultOptions{CPUs: 2})))
	f.Add([]byte("version: 1\nscalers: &s\n  - *s\n"))
	f.Add([]byte(entry("    platform: {os: macos}\n    roles: [builder]\n    labelSets: [{labels: [a], resources: {requests: {cpus: 1}}, env: {A: b}}]\n")))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, problems := ParseConfig("f", data, LoadOptions{Kinds: testKinds()})
		if (c == nil) != (Errors(problems) != nil) {
			t.Fatalf("configuration %v with problems %v", c, problems)
		}
		if c == nil {
			return
		}
		for i := range c.Scalers {
			e := &c.Scalers[i]
			for _, s := range e.offers(testKinds()[0], Platform{"linux", "amd64"}) {
				if len(s.Declared) == 0 || len(s.Gate) > 0 && len(s.AgentLabels) == 0 {
					t.Fatalf("set %+v", s)
				}
			}
		}
	})
}
