package workflow

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"

	"github.com/kici-go/kici/internal/workflow/lock"
)

// checkCompiled holds for every input: a lock or an error with a place, and what compiles passes the reader's own checks and
// comes back unchanged.
func checkCompiled(t interface {
	Helper()
	Fatalf(string, ...any)
}, data []byte,
) {
	t.Helper()
	s := Source{Path: FilesDir + "/x.yaml", Data: data}
	start := time.Now()
	f, problems := Compile([]Source{s})
	if d := time.Since(start); d > 30*time.Second {
		t.Fatalf("took %v", d)
	}
	if f == nil {
		if !HasErrors(problems) {
			t.Fatalf("no lock and no error")
		}
		return
	}
	lines := 2 + bytes.Count(data, []byte("\n")) + bytes.Count(data, []byte("\r")) + bytes.Count(data, []byte("\u2028")) + bytes.Count(data, []byte("\u2029")) + bytes.Count(data, []byte("\u0085"))
	for _, p := range problems {
		if p.Line < 0 || p.Line > lines {
			t.Fatalf("place outside of the file: %+v", p)
		}
	}
	b, err := Encode(f)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	again, result, problems := Load([]Source{s, {Path: LockPath, Data: b}})
	if result != OK {
		t.Fatalf("%v: %v\n%s", result, problems, b)
	}
	c, err := Encode(again)
	if err != nil || !bytes.Equal(b, c) {
		t.Fatalf("changed by a round trip (%v):\n%s\n%s", err, b, c)
	}
	for i := range f.Workflows[0].Jobs {
		if _, err := Expand(&f.Workflows[0].Jobs[i], ExpandContext{}); err != nil && !dynamic(f.Workflows[0].Jobs[i].Matrix) {
			t.Fatalf("a static matrix that compiled does not expand: %v", err)
		}
	}
}

func FuzzCompile(f *testing.F) {
	for _, dir := range []string{"good", "bad"} {
		for _, name := range yamlFiles(f, dir) {
			f.Add(source(f, name).Data)
		}
	}
	starter, err := os.ReadFile("../cli/workflowcmd/starter.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(starter)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 64<<10 {
			return
		}
		checkCompiled(t, data)
	})
}

func FuzzParseLock(f *testing.F) {
	for _, name := range yamlFiles(f, "good") {
		c, _ := Compile([]Source{source(f, name)})
		b, err := Encode(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, problems := ParseLock(data)
		if got == nil {
			if !HasErrors(problems) {
				t.Fatal("no lock and no error")
			}
			return
		}
		if got.Format != lock.Format {
			t.Fatal(got.Format)
		}
		for i := range got.Workflows {
			w := &got.Workflows[i]
			for k := range w.Jobs {
				_, _ = Expand(&w.Jobs[k], ExpandContext{})
			}
		}
	})
}

// TestMutatedFilesNeverPanic: lines of real files, shuffled, cut and doubled.
func TestMutatedFilesNeverPanic(t *testing.T) {
	var pool []string
	for _, dir := range []string{"good", "bad"} {
		for _, name := range yamlFiles(t, dir) {
			pool = append(pool, strings.SplitAfter(string(source(t, name).Data), "\n")...)
		}
	}
	base := strings.SplitAfter(string(source(t, "testdata/good/everything.yaml").Data), "\n")
	rapid.Check(t, func(t *rapid.T) {
		lines := append([]string(nil), base...)
		for range rapid.IntRange(1, 5).Draw(t, "edits") {
			i := rapid.IntRange(0, len(lines)-1).Draw(t, "at")
			switch rapid.IntRange(0, 2).Draw(t, "edit") {
			case 0:
				lines[i] = ""
			case 1:
				lines[i] = rapid.SampledFrom(pool).Draw(t, "line")
			default:
				lines[i] += rapid.SampledFrom(pool).Draw(t, "line")
			}
		}
		checkCompiled(t, []byte(strings.Join(lines, "")))
	})
}

// TestEveryMisspelledKeyIsFound: whichever key of a complete workflow is misspelled, the compiler says so in its line; only names that
// authors choose themselves may be anything.
func TestEveryMisspelledKeyIsFound(t *testing.T) {
	data := source(t, "testdata/good/everything.yaml").Data
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	free := map[string]bool{"env": true, "inputs": true, "outputs": true, "jobs": true, "matrix": true, "match": true, "not": true, "include": true, "os": true}
	checked := 0
	var walk func(n *yaml.Node, under string)
	walk = func(n *yaml.Node, under string) {
		if n.Kind != yaml.MappingNode {
			for _, c := range n.Content {
				walk(c, under)
			}
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			walk(n.Content[i+1], k.Value)
			if free[under] || under == "exclude" && k.Value != "exclude" {
				continue
			}
			lines := strings.Split(string(data), "\n")
			raw := []rune(lines[k.Line-1])
			at := k.Column - 1
			if string(raw[at:at+len(k.Value)]) != k.Value {
				continue // quoted
			}
			lines[k.Line-1] = string(raw[:at]) + k.Value + "q" + string(raw[at+len(k.Value):])
			_, problems := Compile([]Source{{Path: FilesDir + "/x.yaml", Data: []byte(strings.Join(lines, "\n"))}})
			found := false
			for _, p := range problems {
				found = found || !p.Warning && p.Line == k.Line && p.Col == k.Column && strings.Contains(p.Error(), `did you mean "`+k.Value+`"?`)
			}
			if !found {
				t.Errorf("line %d: %sq under %s is not found: %v", k.Line, k.Value, under, problems)
			}
			checked++
		}
	}
	walk(&doc, "")
	if checked < 70 {
		t.Errorf("only %d keys were tried", checked)
	}
}

func BenchmarkCompile(b *testing.B) {
	s := source(b, "testdata/good/ci.yaml")
	b.ReportAllocs()
	for b.Loop() {
		if f, _ := Compile([]Source{s}); f == nil {
			b.Fatal("no lock")
		}
	}
}

func BenchmarkLoadCommittedLock(b *testing.B) {
	s := source(b, "testdata/good/ci.yaml")
	f, _ := Compile([]Source{s})
	data, err := Encode(f)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, r, _ := Load([]Source{s, {Path: LockPath, Data: data}}); r != OK {
			b.Fatal(r)
		}
	}
}

func BenchmarkExpand256(b *testing.B) {
	m := &lock.Matrix{Order: []string{"a", "b"}, Dimensions: map[string][]json.RawMessage{}}
	for i := range 16 {
		v, _ := json.Marshal(i)
		m.Dimensions["a"] = append(m.Dimensions["a"], v)
		m.Dimensions["b"] = append(m.Dimensions["b"], v)
	}
	j := &lock.Job{Name: "j", Matrix: m}
	b.ReportAllocs()
	for b.Loop() {
		if c, err := Expand(j, ExpandContext{}); err != nil || len(c) != 256 {
			b.Fatal(err)
		}
	}
}
