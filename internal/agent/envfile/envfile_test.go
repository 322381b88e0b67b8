package envfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kici-go/kici/internal/agent/envfile"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     []envfile.Pair
		err      string
	}{
		{"pairs", "a=1\nb=x=y\n\nc=\r\n", []envfile.Pair{{"a", "1"}, {"b", "x=y"}, {"c", ""}}, ""},
		{"no last newline", "a=1", []envfile.Pair{{"a", "1"}}, ""},
		{"heredoc", "a<<EOF\nl1\n\nl=2\nEOF\nb=2", []envfile.Pair{{"a", "l1\n\nl=2"}, {"b", "2"}}, ""},
		{"empty heredoc", "a<<E\nE\n", []envfile.Pair{{"a", ""}}, ""},
		{"crlf heredoc", "a<<E\r\nx\r\nE\r\n", []envfile.Pair{{"a", "x"}}, ""},
		{"value holds <<", "a=1<<2", []envfile.Pair{{"a", "1<<2"}}, ""},
		{"bom", "\xef\xbb\xbfa=1", []envfile.Pair{{"a", "1"}}, ""},
		{"unclosed", "b=1\na<<EOF\nx\n", nil, `line 3: the delimiter "EOF" is missing`},
		{"no delimiter", "a<<\n", nil, "no delimiter"},
		{"no name", "=x", nil, "name is empty"},
		{"garbage", "x\n", nil, "line 1: expected name=value"},
		{"long name", strings.Repeat("n", 300) + "=1", nil, "longer than"},
		{"many", strings.Repeat("a=1\n", 1001), nil, "more than 1000"},
		{"large", strings.Repeat("a", 1<<20+1), nil, "larger than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := envfile.Parse("KICI_ENV", []byte(c.in))
			if c.err != "" {
				if !errors.Is(err, envfile.ErrFormat) || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("err = %v, want %q", err, c.err)
				}
				return
			}
			if d := cmp.Diff(c.want, got); err != nil || d != "" {
				t.Fatal(err, d)
			}
		})
	}
}

func TestCheckEnv(t *testing.T) {
	for name, ok := range map[string]bool{
		"FOO": true, "LD_PRELOAD": true, "foo.bar": true, "NODE_OPTIONS": false, "node_options": false, "KICI_AGENT_TOKEN": false,
		"GITHUB_TOKEN": true, "kici_x": false, "A B": false,
	} {
		if err := envfile.CheckEnv(envfile.Pair{Name: name, Value: "v"}); (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if envfile.CheckEnv(envfile.Pair{Name: "A", Value: "x\x00y"}) == nil {
		t.Error("a NUL byte was accepted")
	}
}

func TestReadRefusesWhatIsNotAFile(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/etc/passwd", link); err != nil {
		t.Fatal(err)
	}
	if _, err := envfile.Read(link); !errors.Is(err, envfile.ErrFormat) {
		t.Errorf("symlink: %v", err)
	}
	if _, err := envfile.Read(dir); !errors.Is(err, envfile.ErrFormat) {
		t.Errorf("directory: %v", err)
	}
	if b, err := envfile.Read(filepath.Join(dir, "gone")); b != nil || err != nil {
		t.Errorf("gone: %q %v", b, err)
	}
	file := filepath.Join(dir, "f")
	_ = os.WriteFile(file, []byte("a=1"), 0o600)
	if b, err := envfile.Read(file); string(b) != "a=1" || err != nil {
		t.Errorf("file: %q %v", b, err)
	}
}

func TestParsePath(t *testing.T) {
	got, err := envfile.ParsePath([]byte("/a\n\n/b c\r\n"))
	if d := cmp.Diff([]string{"/a", "/b c"}, got); err != nil || d != "" {
		t.Error(err, d)
	}
	if _, err := envfile.ParsePath([]byte("/a:/b\n")); err == nil {
		t.Error("a list in one line was accepted")
	}
}

func TestParseCommand(t *testing.T) {
	for in, want := range map[string]envfile.Command{
		"::add-mask::sec%0Aret%25":               {Name: "add-mask", Data: "sec\nret%"},
		"  ::error file=a.go,line=3::bad: thing": {Name: "error", Data: "bad: thing", Properties: map[string]string{"file": "a.go", "line": "3"}},
		"::group::A":                             {Name: "group", Data: "A"},
		"::endgroup::":                           {Name: "endgroup"},
		"::notice title=a%3Ab%2Cc::x\r":          {Name: "notice", Data: "x", Properties: map[string]string{"title": "a:b,c"}},
	} {
		got, ok := envfile.ParseCommand(in)
		if d := cmp.Diff(want, got); !ok || d != "" {
			t.Errorf("%q: %v %s", in, ok, d)
		}
	}
	for _, in := range []string{"", "x", ":: ::x", "::x", ":x::y", "a ::b::c"} {
		if c, ok := envfile.ParseCommand(in); ok {
			t.Errorf("%q is %v", in, c)
		}
	}
}

// What a step writes in either form is what is read.
func TestRoundTripProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[A-Za-z_][A-Za-z0-9_]{0,8}`)
		line := rapid.StringMatching(`[ -~]{0,12}`)
		var file strings.Builder
		var want []envfile.Pair
		for range rapid.IntRange(0, 5).Draw(t, "n") {
			n := name.Draw(t, "name")
			if rapid.Bool().Draw(t, "heredoc") {
				v := strings.Join(rapid.SliceOfN(line, 1, 4).Draw(t, "lines"), "\n")
				file.WriteString(n + "<<~delim~of~this\n" + v + "\n~delim~of~this\n")
				want = append(want, envfile.Pair{Name: n, Value: v})
			} else {
				v := line.Draw(t, "value")
				file.WriteString(n + "=" + v + "\n")
				want = append(want, envfile.Pair{Name: n, Value: v})
			}
		}
		got, err := envfile.Parse("F", []byte(file.String()))
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Fatal(err, d)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("a=1\nb<<E\nx\nE\n"))
	f.Add([]byte("a<<"))
	f.Fuzz(func(t *testing.T, data []byte) {
		pairs, err := envfile.Parse("F", data)
		if err != nil && pairs != nil {
			t.Fatal("both")
		}
		total := 0
		for _, p := range pairs {
			if p.Name == "" || strings.ContainsAny(p.Name, "\n\x00") {
				t.Fatalf("name %q", p.Name)
			}
			total += len(p.Value)
		}
		if total > len(data) {
			t.Fatal("more came out than went in")
		}
	})
}

func FuzzParseCommand(f *testing.F) {
	f.Add("::error file=a::b")
	f.Fuzz(func(t *testing.T, line string) {
		if c, ok := envfile.ParseCommand(line); ok && c.Name == "" {
			t.Fatal("no name")
		}
	})
}
