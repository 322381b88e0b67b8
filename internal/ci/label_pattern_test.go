package ci

import (
	"strings"
	"testing"
)

func TestLabelPatterns(t *testing.T) {
	for pattern, c := range map[string]struct{ yes, no string }{
		"gpu-*":         {"gpu-a gpu- GPU-B", "gpu agpu-b linux"},
		"*":             {"a linux", ""},
		"*-gpu-*-x":     {"a-gpu-b-x -gpu--x", "a-gpu-x a-gpu-b-x1"},
		"a*a":           {"aa aba", "a ab"},
		"a*b*b":         {"abb axbxb", "ab"},
		"/^zone-[ab]$/": {"zone-a ZONE-B", "zone-c zone-ab"},
		`/node\D/`:      {"my-node-x", "node1 node"},
	} {
		if !IsLabelPattern(pattern) {
			t.Errorf("%s is no pattern", pattern)
		}
		matches, err := CompileLabelPattern(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range strings.Fields(c.yes) {
			if !matches(l) {
				t.Errorf("%s does not match %s", pattern, l)
			}
		}
		for _, l := range strings.Fields(c.no) {
			if matches(l) {
				t.Errorf("%s matches %s", pattern, l)
			}
		}
	}
	for _, l := range []string{"linux", "kici:os:linux", "/", "//", "a/b/"} {
		if IsLabelPattern(l) {
			t.Errorf("%q is a pattern", l)
		}
	}
	if _, err := CompileLabelPattern("/(/"); err == nil || !strings.Contains(err.Error(), "/(/") {
		t.Errorf("%v", err)
	}
	if got := NormalizeLabels([]string{`/\D/`, "GPU-*", "gpu-*"}); strings.Join(got, " ") != `/\D/ gpu-*` {
		t.Errorf("%q", got)
	}
}

func TestSelectorConflict(t *testing.T) {
	for _, c := range []struct{ required, exclude, want string }{
		{"linux gpu", "spot", ""},
		{"linux gpu", "GPU", "gpu"},
		{"linux gpu-a", "gpu-*", "gpu-a"},
		{"linux gpu-*", "gpu-*", "gpu-*"},
		{"linux gpu-*", "gpu-a", ""},
		{"gpu-*", "gpu-a*", ""},
		{"a", "/(/", ""},
		{"zone-a", "/^zone/", "zone-a"},
	} {
		if got := SelectorConflict(strings.Fields(c.required), strings.Fields(c.exclude)); got != c.want {
			t.Errorf("%s without %s: %q, want %q", c.required, c.exclude, got, c.want)
		}
	}
}

func FuzzLabelPattern(f *testing.F) {
	for _, p := range []string{"a*b", "**", "/a+/", "/(/", "/./*"} {
		f.Add(p, "ab")
	}
	f.Fuzz(func(t *testing.T, pattern, label string) {
		if !IsLabelPattern(pattern) {
			return
		}
		matches, err := CompileLabelPattern(pattern)
		if err != nil {
			return
		}
		if got := matches(label); !isLabelRegexp(pattern) && !got && matches(strings.ReplaceAll(strings.ToLower(pattern), "*", label)) == false {
			t.Errorf("%q does not match what is made from it with %q", pattern, label)
		}
	})
}
