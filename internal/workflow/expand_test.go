package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kici-go/kici/internal/workflow/lock"
)

// jobWith compiles a job with a strategy block.
func jobWith(t testing.TB, matrix string) *lock.Job {
	t.Helper()
	text := "on: {workflow_dispatch: {inputs: {list: }}}\njobs:\n  test:\n    runs-on: linux\n    steps: [{run: x}]\n    strategy:\n      matrix: " + matrix + "\n"
	f, problems := Compile([]Source{{Path: FilesDir + "/x.yaml", Data: []byte(text)}})
	if f == nil {
		t.Fatalf("%s\n%v", text, problems)
	}
	return &f.Workflows[0].Jobs[0]
}

func expanded(t testing.TB, j *lock.Job, in ExpandContext) (names []string) {
	t.Helper()
	children, err := Expand(j, in)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range children {
		if c.Index != i || c.Total != len(children) {
			t.Errorf("child %d of %d says %d of %d", i, len(children), c.Index, c.Total)
		}
		names = append(names, c.Name+" "+string(c.Matrix))
	}
	return names
}

func TestExpand(t *testing.T) {
	in := ExpandContext{Contexts: map[string]any{
		"inputs": map[string]any{"list": `["x","y"]`, "m": `{"b":[1,2],"a":["p"],"include":[{"a":"q"}]}`, "bad": "3"},
		"kici":   map[string]any{"ref_name": "main"},
	}}
	for _, c := range []struct {
		matrix string
		want   []string
	}{
		{"{os: [linux, mac], go: [1, 2]}", []string{
			`test (linux, 1) {"go":1,"os":"linux"}`, `test (linux, 2) {"go":2,"os":"linux"}`,
			`test (mac, 1) {"go":1,"os":"mac"}`, `test (mac, 2) {"go":2,"os":"mac"}`,
		}},
		{"[a, b]", []string{`test (a) {"value":"a"}`, `test (b) {"value":"b"}`}},
		{"{os: [a, b], n: [1, 2], exclude: [{os: a, n: 1}, {n: 2, os: b}]}", []string{
			`test (a, 2) {"n":2,"os":"a"}`, `test (b, 1) {"n":1,"os":"b"}`,
		}},
		{"{os: [a, b], exclude: [{}]}", []string{`test (a) {"os":"a"}`, `test (b) {"os":"b"}`}},
		{"{os: [a, b], include: [{}]}", []string{`test (a) {"os":"a"}`, `test (b) {"os":"b"}`}},
		// GitHub's own example.
		{"{fruit: [apple, pear], animal: [cat, dog], include: [{color: green}, {color: pink, animal: cat}, {fruit: apple, shape: circle}, {fruit: banana}, {fruit: banana, animal: cat}]}", []string{
			`test (apple, cat, pink, circle) {"animal":"cat","color":"pink","fruit":"apple","shape":"circle"}`,
			`test (apple, dog, green, circle) {"animal":"dog","color":"green","fruit":"apple","shape":"circle"}`,
			`test (pear, cat, pink) {"animal":"cat","color":"pink","fruit":"pear"}`,
			`test (pear, dog, green) {"animal":"dog","color":"green","fruit":"pear"}`,
			`test (banana) {"fruit":"banana"}`,
			`test (banana, cat) {"animal":"cat","fruit":"banana"}`,
		}},
		{"{include: [{a: 1}, {b: 2}]}", []string{`test (1) {"a":1}`, `test (2) {"b":2}`}},
		{"{a: [1, '1', true]}", []string{`test (1) {"a":1}`, `test (1) #2 {"a":"1"}`, `test (true) {"a":true}`}},
		{"{a: [{x: 1, y: [z]}]}", []string{`test ({"x":1,"y":["z"]}) {"a":{"x":1,"y":["z"]}}`}},
		{"{a: [\"p\\nq\"]}", []string{`test (p q) {"a":"p\nq"}`}},
		{"${{ fromJSON(inputs.m) }}", []string{`test (p, 1) {"a":"p","b":1}`, `test (p, 2) {"a":"p","b":2}`, `test (q) {"a":"q"}`}},
		{"{a: '${{ fromJSON(inputs.list) }}', b: [1]}", []string{`test (x, 1) {"a":"x","b":1}`, `test (y, 1) {"a":"y","b":1}`}},
		{"{a: ['on ${{ kici.ref_name }}', plain]}", []string{`test (on main) {"a":"on main"}`, `test (plain) {"a":"plain"}`}},
		{"{a: [1], include: '${{ fromJSON(''[{\"a\":1,\"k\":2}]'') }}'}", []string{`test (1, 2) {"a":1,"k":2}`}},
		{"{a: [1, 2], exclude: '${{ fromJSON(''[{\"a\":1}]'') }}'}", []string{`test (2) {"a":2}`}},
	} {
		if d := cmp.Diff(c.want, expanded(t, jobWith(t, c.matrix), in)); d != "" {
			t.Errorf("%s: %s", c.matrix, d)
		}
	}
	for matrix, says := range map[string]string{
		"${{ fromJSON(inputs.bad) }}":               "must give an object or a list",
		"${{ fromJSON('{\"a\":1}') }}":              "a must be a list",
		"${{ fromJSON('{\"a b\":[1]}') }}":          "cannot be the name",
		"${{ fromJSON('{') }}":                      "fromJSON",
		"${{ fromJSON('[]') }}":                     "no combination",
		"{a: [1], include: '${{ kici.ref_name }}'}": "list of objects",
		"{a: ['${{ kici.x.y && fromJSON('''') || 1 }}', '${{ fromJSON('''') }}']}": "empty",
	} {
		_, err := Expand(jobWith(t, matrix), in)
		if !errors.Is(err, ErrMatrix) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", matrix, err)
		}
	}
}

func TestExpandBoundsWhatOnlyARunKnows(t *testing.T) {
	list := func(n int) string {
		b, _ := json.Marshal(make([]int, n))
		return string(b)
	}
	for n, ok := range map[int]bool{256: true, 257: false, 100_000: false} {
		j := jobWith(t, "{a: '${{ fromJSON(inputs.list) }}'}")
		_, err := Expand(j, ExpandContext{Contexts: map[string]any{"inputs": map[string]any{"list": list(n)}}})
		if (err == nil) != ok {
			t.Errorf("%d: %v", n, err)
		}
	}
	long := jobWith(t, "{a: ['"+strings.Repeat("x", 500)+"', '"+strings.Repeat("x", 500)+"y']}")
	names := expanded(t, long, ExpandContext{})
	if len(names) != 2 || names[0][:200] != names[1][:200] || strings.Fields(names[0])[2] == strings.Fields(names[1])[2] {
		t.Errorf("long names: %q", names)
	}
}

func TestDisplayName(t *testing.T) {
	in := ExpandContext{Contexts: map[string]any{"kici": map[string]any{"actor": "ann"}}}
	j := &lock.Job{Name: "a"}
	m := &lock.Matrix{Order: []string{"os"}, Dimensions: map[string][]json.RawMessage{"os": {json.RawMessage(`"linux"`)}}}
	for _, c := range []struct {
		name   string
		matrix *lock.Matrix
		want   string
	}{
		{"", nil, ""},
		{"Build", nil, "Build"},
		{"For ${{ github.actor }}", nil, "For ann"},
		{"Build", m, "Build (linux)"},
		{"On ${{ matrix.os }}", m, "On linux"},
		{"${{ fromJSON('{') }}", m, ""},
	} {
		j.DisplayName, j.Matrix = c.name, c.matrix
		children, err := Expand(j, in)
		if err != nil || children[0].DisplayName != c.want {
			t.Errorf("%q: %+v %v", c.name, children, err)
		}
	}
}

// TestExpandProperties: names are unique, no child is excluded, every child has a value for each dimension unless an include made
// it, and the count is the product less the excluded.
func TestExpandProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &lock.Matrix{Dimensions: map[string][]json.RawMessage{}}
		product := 1
		for i := range rapid.IntRange(1, 3).Draw(t, "dimensions") {
			name := fmt.Sprintf("d%d", i)
			n := rapid.IntRange(1, 4).Draw(t, name)
			for v := range n {
				m.Dimensions[name] = append(m.Dimensions[name], json.RawMessage(fmt.Sprint(v)))
			}
			m.Order = append(m.Order, name)
			product *= n
		}
		for range rapid.IntRange(0, 3).Draw(t, "excludes") {
			name := rapid.SampledFrom(m.Order).Draw(t, "by")
			m.Exclude = append(m.Exclude, map[string]json.RawMessage{name: json.RawMessage(fmt.Sprint(rapid.IntRange(0, 4).Draw(t, "value")))})
		}
		j := &lock.Job{Name: "j", Matrix: m}
		children, err := Expand(j, ExpandContext{})
		if err != nil {
			if !strings.Contains(err.Error(), "no combination") {
				t.Fatal(err)
			}
			return
		}
		if len(children) > product {
			t.Fatalf("%d children of %d", len(children), product)
		}
		seen := map[string]bool{}
		for _, c := range children {
			if seen[c.Name] {
				t.Fatalf("%s twice", c.Name)
			}
			seen[c.Name] = true
			var got map[string]json.RawMessage
			if err := json.Unmarshal(c.Matrix, &got); err != nil || len(got) != len(m.Order) {
				t.Fatalf("%s: %s", c.Name, c.Matrix)
			}
			for _, e := range m.Exclude {
				for k, v := range e {
					if string(got[k]) == string(v) {
						t.Fatalf("%s is excluded", c.Name)
					}
				}
			}
		}
		again, _ := Expand(j, ExpandContext{})
		if !slices.EqualFunc(children, again, func(a, b Child) bool { return a.Name == b.Name }) {
			t.Fatal("not deterministic")
		}
	})
}

func TestResolveInputs(t *testing.T) {
	w := workflowOn(t, `
workflow_dispatch:
  inputs:
    target: {type: choice, options: [staging, production], required: true}
    count: {type: integer, min: 1, max: 10, default: 3}
    ratio: {type: number}
    dry: {type: boolean}
    ref: {pattern: '^[a-z]+$'}
`)
	trigger := DispatchTrigger(w)
	for given, want := range map[string]string{
		`{"target":"staging"}`: `{"count":3,"target":"staging"}`,
		`{"target":"production","count":"7","ratio":"1.5","dry":"yes"}`: `{"count":7,"dry":true,"ratio":1.5,"target":"production"}`,
		`{"target":"staging","dry":0,"ref":"abc","count":null}`:         `{"count":3,"dry":false,"ref":"abc","target":"staging"}`,
		`{}`:                                 `inputs.target: input target is required`,
		`{"target":"prod"}`:                  `input target must be one of staging, production, got "prod"`,
		`{"target":"staging","count":11}`:    `input count must be at most 10, got 11`,
		`{"target":"staging","count":0}`:     `input count must be at least 1, got 0`,
		`{"target":"staging","count":1.5}`:   `input count must be a whole number, got 1.5`,
		`{"target":"staging","count":"0x5"}`: `input count must be a number, got "0x5"`,
		`{"target":"staging","ratio":"NaN"}`: `must be a number`,
		`{"target":"staging","dry":"maybe"}`: `input dry must be true or false, got "maybe"`,
		`{"target":"staging","ref":"A"}`:     `input ref must match ^[a-z]+$, got "A"`,
		`{"target":"staging","ref":["a"]}`:   `must be a text, got a list`,
		`{"target":"staging","traget":"x"}`:  `there is no input "traget" (did you mean "target"?)`,
		`{"target":"staging","ref":"` + strings.Repeat("a", maxInputBytes+1) + `"}`: `longer than 65536 bytes`,
	} {
		var in map[string]any
		if err := json.Unmarshal([]byte(given), &in); err != nil {
			t.Fatal(err)
		}
		got, problems := ResolveInputs(trigger, in)
		b, _ := json.Marshal(got)
		text := string(b)
		if len(problems) > 0 {
			if got != nil {
				t.Errorf("%.60s: values beside problems", given)
			}
			text = problems[0].Field + ": " + problems[0].Error()
		}
		if !strings.Contains(text, want) {
			t.Errorf("%.60s: %s, want %s", given, text, want)
		}
	}
	_, problems := ResolveInputs(trigger, map[string]any{"a": 1, "b": 2, "dry": "x"})
	if len(problems) != 4 {
		t.Errorf("not all at once: %v", problems)
	}
	if _, problems = ResolveInputs(&lock.Trigger{}, map[string]any{"x": 1}); len(problems) != 1 || !strings.Contains(problems[0].Cure, "takes no inputs") {
		t.Error(problems)
	}
	if DispatchTrigger(workflowOn(t, " push")) != nil {
		t.Error("push can be started by hand")
	}
}
