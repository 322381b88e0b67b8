package expr

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func testEnv() Env {
	return Env{
		Contexts: map[string]any{
			"kici": map[string]any{
				"ref": "refs/heads/main", "event_name": "push", "run_number": int64(482),
				"event": json.RawMessage(`{"commits":[{"id":"a","files":["x","y"]},{"id":"b","files":["z"]}],"n":1.5,"big":1e20}`),
			},
			"needs": map[string]any{"build": map[string]any{
				"result": "success", "outputs": map[string]string{"version": "1.2", "list": `["a","b"]`},
			}},
			"matrix": json.RawMessage(`{"os":"linux","v":3.10,"o":{"z":1,"a":"two"}}`),
			"env":    map[string]string{"HOME": "/root"},
			"inputs": map[string]any{"flag": true, "none": nil, "s": "", "labels": []string{"Bug", "ui"}},
		},
		Status: "failure",
		HashFiles: func(p []string) (string, error) {
			if p[0] == "bad" {
				return "", errors.New("no such pattern")
			}
			return "h:" + strings.Join(p, "+"), nil
		},
	}
}

func TestEval(t *testing.T) {
	list := func(v ...any) any { return v }
	for src, want := range map[string]any{
		"1":                                     nil,
		"null":                                  nil,
		"true && 'x'":                           "x",
		"false && 'x'":                          false,
		"'' || 0 || 'last'":                     "last",
		"'' || 0":                               0.0,
		"!''":                                   true,
		"!!'a'":                                 true,
		"'it''s'":                               "it's",
		"0x1F":                                  31.0,
		"0o17":                                  15.0,
		"-1.5e2":                                -150.0,
		".5":                                    0.5,
		"1 == 1.0":                              true,
		"'ABC' == 'abc'":                        true,
		"'ABC' != 'abd'":                        true,
		"null == 0":                             true,
		"null == ''":                            true,
		"true == 1":                             true,
		"true == '1'":                           true,
		"'0x10' == 16":                          true,
		"'abc' == 0":                            false,
		"NaN == NaN":                            false,
		"NaN < 1":                               false,
		"Infinity > 1":                          true,
		"'b' > 'A'":                             true,
		"2 < '10'":                              true,
		"1 < 2 == true":                         true,
		"1 == 2 || 3 == 3 && !false":            true,
		"(1 == 2 || 3 == 3) && false":           false,
		"kici.ref":                              "refs/heads/main",
		"github.ref":                            "refs/heads/main",
		"GitHub.REF":                            "refs/heads/main",
		"kici['ref']":                           "refs/heads/main",
		"kici.nothing.deeper['x'][0]":           nil,
		"kici.run_number":                       482.0,
		"kici.event.n":                          1.5,
		"kici.event.commits[1].id":              "b",
		"kici.event.commits['1'].id":            "b",
		"kici.event.commits[7]":                 nil,
		"kici.event.commits[-1]":                nil,
		"kici.event.commits.*.id":               list("a", "b"),
		"kici.event.commits.*.files[0]":         list("x", "z"),
		"kici.event.commits.*.files.*":          list("x", "y", "z"),
		"kici.event.commits[*].id":              list("a", "b"),
		"matrix.o.*":                            list("two", 1.0),
		"matrix.v":                              3.1,
		"needs.build.outputs.version":           "1.2",
		"needs.*.result":                        list("success"),
		"env.HOME":                              "/root",
		"contains('Hello', 'ELL')":              true,
		"contains(inputs.labels, 'bug')":        true,
		"contains(inputs.labels, 'bu')":         false,
		"contains(needs.*.result, 'success')":   true,
		"contains(12345, 34)":                   true,
		"contains(kici.event, 'x')":             false,
		"startsWith(kici.ref, 'REFS/')":         true,
		"endsWith(kici.ref, 'main')":            true,
		"startsWith(null, '')":                  true,
		"format('{0}-{1}-{0}', 'a', 2)":         "a-2-a",
		"format('{{{0}}}', true)":               "{true}",
		"join(inputs.labels)":                   "Bug,ui",
		"join(inputs.labels, ' + ')":            "Bug + ui",
		"join('one')":                           "one",
		"join(fromJSON('[1,true,null]'))":       "1,true,",
		"toJSON(needs.*.result)":                "[\n  \"success\"\n]",
		"toJSON('<a&b>')":                       `"<a&b>"`,
		"toJSON(matrix.o)":                      "{\n  \"a\": \"two\",\n  \"z\": 1\n}",
		"fromJSON(needs.build.outputs.list)[1]": "b",
		"fromJSON('{\"a\":{\"b\":2}}').a.b":     2.0,
		"hashFiles('a', '*.go')":                "h:a+*.go",
		"success()":                             false,
		"FAILURE()":                             true,
		"cancelled()":                           false,
		"always() && 'x'":                       "x",
		"inputs.flag && 'on' || 'off'":          "on",
		"inputs.none == null":                   true,
		"inputs['f' ]":                          nil,
		"kici.a-b":                              nil,
		"${{ 1 == 1 }}":                         true,
		"  ${{ '}}' }}  ":                       "}}",
	} {
		if src == "1" {
			want = 1.0
		}
		got, err := Eval(src, testEnv())
		if err != nil {
			t.Errorf("%s: %v", src, err)
		} else if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", src, d)
		}
	}
}

func TestErrors(t *testing.T) {
	for src, want := range map[string]string{
		"":                                 "column 1: expression is empty",
		"   ":                              "column 4: expression is empty",
		"1 +":                              "column 3: expressions have no arithmetic (compute it in a step)",
		"a = 1":                            "column 3: single = is not an operator (write ==)",
		`kici.ref == "x"`:                  "column 13: strings stand in single quotes (write 'text')",
		"'abc":                             "column 1: string has no end (end it with ')",
		"kici.":                            "column 6: expression ends where a property name or * should follow",
		"(1":                               "column 3: expression ends where ) should follow",
		"a[1":                              "column 4: expression ends where ] should follow",
		"true and false":                   `column 6: unexpected "and", expected an operator or the end (write &&)`,
		"contain('a', 'b')":                `column 1: unknown function "contain" (did you mean "contains"?)`,
		"contains('a')":                    "column 1: contains takes 2 arguments, got 1",
		"join()":                           "column 1: join takes 1 or 2 arguments, got 0",
		"format()":                         "column 1: format takes at least 1 arguments, got 0",
		"always(1)":                        "column 1: always takes 0 arguments, got 1",
		"1.2.3":                            `column 1: "1.2.3" is not a number`,
		"5x":                               `column 1: "5x" is not a number`,
		"a && ${{ b }}":                    `column 6: unexpected "$" (write the expression without ${{ }} inside)`,
		"a & b":                            "column 3: single & is not an operator (write &&)",
		"é":                                `column 1: unexpected "é"`,
		"steps.x":                          `column 1: context "steps" is not available here`,
		"1 == steps.x":                     `column 6: context "steps" is not available here`,
		"format('{1}', 'a')":               "column 1: format: no argument for {1}",
		"format('{', 'a')":                 "column 1: format: { and } that are not placeholders are written {{ and }}",
		"fromJSON('{')":                    "column 1: fromJSON: unexpected end of JSON input",
		"fromJSON('')":                     "column 1: fromJSON: the text is empty",
		"hashFiles('bad')":                 "column 1: no such pattern",
		"${{ 1 + 1 }}":                     "column 7: expressions have no arithmetic (compute it in a step)",
		strings.Repeat("(", 200):           "column 101: expression nests deeper than 100",
		strings.Repeat("!", 200) + "1":     "column 100: expression nests deeper than 100",
		"kici" + strings.Repeat(".a", 200): "column 204: expression nests deeper than 100",
		strings.Repeat("1", MaxLength+1):   "column 1: expression is longer than 21000 bytes",
	} {
		_, err := Eval(src, testEnv())
		if err == nil || err.Error() != want {
			t.Errorf("%.40s: got %v, want %s", src, err, want)
		}
	}
}

func TestInterpolate(t *testing.T) {
	for text, want := range map[string]string{
		"plain $ {{ }} text":               "plain $ {{ }} text",
		"a ${{ kici.ref }} b":              "a refs/heads/main b",
		"${{ 1 }}${{ 'x' }}":               "1x",
		"${{ '}}' }}!":                     "}}!",
		"n=${{ kici.event.big }}":          "n=1E+20",
		"${{ inputs.none }}|":              "|",
		"${{ inputs.labels }}":             `["Bug","ui"]`,
		"${{ 3.10 }} ${{ 0.1 }} ${{ -0 }}": "3.1 0.1 0",
		"é ${{ true }} é":                  "é true é",
	} {
		got, err := Interpolate(text, testEnv())
		if err != nil || got != want {
			t.Errorf("%q: got %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"x ${{ kici.ref ": "column 3: ${{ has no end (close it with }})",
		"ab ${{ 1 + 2 }}": "column 10: expressions have no arithmetic (compute it in a step)",
		"ab ${{ a.b }}":   `column 8: context "a" is not available here`,
	} {
		if _, err := Interpolate(text, testEnv()); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestCondition(t *testing.T) {
	for _, c := range []struct {
		src, status     string
		condition, test bool
	}{
		{"", "success", true, true},
		{"", "failure", false, true},
		{"true", "", true, true},
		{"true", "skipped", false, true},
		{"false", "success", false, false},
		{"always()", "cancelled", true, true},
		{"failure()", "failure", true, true},
		{"failure() || cancelled()", "skipped", false, false},
		{"${{ failure() && kici.ref == 'refs/heads/main' }}", "failure", true, true},
		{"!cancelled()", "failure", true, true},
		{"kici.ref == 'always()'", "failure", false, false},
	} {
		env := testEnv()
		env.Status = c.status
		got, err := Condition(c.src, env)
		if err != nil || got != c.condition {
			t.Errorf("Condition(%q) with %q: %v, %v", c.src, c.status, got, err)
		}
		if got, err = Test(c.src, env); err != nil || got != c.test {
			t.Errorf("Test(%q) with %q: %v, %v", c.src, c.status, got, err)
		}
	}
}

func TestCheckReportsEveryUse(t *testing.T) {
	scope := Scope{Phase: "when the run is created", Contexts: []string{"kici", "inputs"}}
	var got []string
	for _, e := range CheckText("${{ needs.a && steps.b }} ${{ input.x }} ${{ always() }} ${{ vars.q }} ${{ hashFiles('x') }} ${{ github.ref }} ${{ 1 + }}", scope) {
		got = append(got, e.Error())
	}
	want := []string{
		`column 5: context "needs" is not available here: this is evaluated when the run is created (available: kici, inputs)`,
		`column 16: context "steps" is not available here: this is evaluated when the run is created (available: kici, inputs)`,
		`column 31: unknown context "input" (did you mean "inputs"?)`,
		`column 46: always() can be used only in if:`,
		`column 62: kici has no context "vars" (available: kici, inputs)`,
		`column 76: hashFiles() can be used only in steps, where the files are`,
		`column 118: expressions have no arithmetic (compute it in a step)`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if e := Check("${{ kici.ref == main }}", scope); len(e) != 1 || e[0].Off != 16 {
		t.Errorf("bare word: %v", e)
	}
}

func TestRefs(t *testing.T) {
	got := Refs("a ${{ needs.build.outputs.x }} ${{ github['ref'] == steps[kici.x].y }} ${{ toJSON(matrix) }}", false)
	want := []Ref{{"needs", "build", 12}, {"kici", "ref", 42}, {"steps", "", 52}, {"kici", "x", 63}, {"matrix", "", 82}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]Ref{{"needs", "a", 6}}, Refs("needs.a.result == 'x'", true)); d != "" {
		t.Error(d)
	}
}

// TestXC23ExpressionCost: work and output are bounded whatever the expression says.
func TestXC23ExpressionCost(t *testing.T) {
	big := strings.Repeat("x", MaxOutput-10)
	env := Env{Contexts: map[string]any{
		"inputs": map[string]any{"big": big, "digits": strings.Repeat("1", MaxOutput), "json": "[" + strings.Repeat("0,", 200_000) + "0]"},
		"kici":   map[string]any{"event": json.RawMessage(`{"a":"` + big + `"}`)},
	}}
	for _, src := range []string{
		"format('{0}{0}', inputs.big)",
		"toJSON(toJSON(toJSON(format('{0}', inputs.big))))",
		strings.Repeat("fromJSON(inputs.json)[0] || ", 700) + "1",
		strings.Repeat("contains(fromJSON(inputs.json), inputs.big) || ", 400) + "1",
		strings.Repeat("inputs.big == 'a' || ", 900) + "1",
		"join(fromJSON(inputs.json), inputs.big)",
		strings.Repeat("contains(fromJSON(inputs.json), inputs.digits) || ", 300) + "1",
	} {
		start := time.Now()
		_, err := Eval(src, env)
		if err == nil {
			t.Errorf("%.40s…: no error", src)
		}
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("%.40s…: took %v", src, d)
		} else {
			t.Logf("%.40s…: %v after %v", src, err, d)
		}
	}
	// A large payload is decoded once, however often it is used.
	if v, err := Eval(strings.Repeat("kici.event.z || ", 1000)+"1", env); err != nil || v != 1.0 {
		t.Errorf("%v, %v", v, err)
	}
	if _, err := Interpolate("${{ inputs.big }}${{ inputs.big }}", env); err == nil {
		t.Error("interpolated text may exceed MaxOutput")
	}
}

func TestEvalIsDeterministic(t *testing.T) {
	env := Env{Contexts: map[string]any{"inputs": map[string]any{"NAME": 1, "Name": 2, "naMe": 3}}}
	for range 50 {
		if v, err := Eval("inputs.name", env); err != nil || v != 1.0 {
			t.Fatalf("got %v, %v", v, err)
		}
		if v, _ := Eval("join(inputs.*)", env); v != "1,2,3" && v != "" {
			t.Fatalf("got %v", v)
		}
	}
}

// TestNumbersRoundTrip: a number that is put into a text compares equal to itself.
func TestNumbersRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := float64(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "n")) / float64(rapid.SampledFrom([]int{1, 2, 4, 10, 1000}).Draw(t, "d"))
		if got := parseNumber(formatNumber(f)); math.Abs(got-f) > math.Abs(f)*1e-14 {
			t.Fatalf("%v became %v", f, got)
		}
	})
}

// TestQuotedTextIsLiteral: any text in quotes evaluates to itself and never to code.
func TestQuotedTextIsLiteral(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		v, err := Eval("'"+strings.ReplaceAll(s, "'", "''")+"'", Env{})
		if err != nil || v != s {
			t.Fatalf("%q became %v, %v", s, v, err)
		}
	})
}

func FuzzEval(f *testing.F) {
	for _, s := range []string{"1", "a.b['c'].*", "contains(fromJSON('[1]'), 1)", "${{ x }}", "!(a && 'b' || c) == 0x1", "format('{0}', kici.event)", "((((", "'", "toJSON(kici)"} {
		f.Add(s)
	}
	env := testEnv()
	f.Fuzz(func(t *testing.T, src string) {
		v, err := Eval(src, env)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Off < 0 || e.Off > len(src) {
				t.Fatalf("%q: error without a place: %v", src, err)
			}
			return
		}
		if _, err = norm(v); err != nil {
			t.Fatalf("%q: foreign value %T", src, v)
		}
		again, err := Eval(src, env)
		if err != nil || Text(again) != Text(v) {
			t.Fatalf("%q: %v, then %v (%v)", src, v, again, err)
		}
		if _, err = Interpolate(src, env); err != nil && !HasExpr(src) {
			t.Fatalf("%q: %v", src, err)
		}
		Check(src, Scope{})
		CheckText(src, Scope{})
		Refs(src, true)
		UsesStatus(src)
	})
}

func BenchmarkEval(b *testing.B) {
	env := testEnv()
	for b.Loop() {
		if _, err := Eval("kici.ref == 'refs/heads/main' && contains(needs.*.result, 'success')", env); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkInterpolatePlain(b *testing.B) {
	for b.Loop() {
		_, _ = Interpolate("go build ./... && go test ./...", Env{})
	}
}
