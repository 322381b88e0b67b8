package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"

	"github.com/kici-go/kici/internal/cli/console"
)

// bench is the command line over the fake server, in this process.
type bench struct {
	out, err bytes.Buffer
	env      map[string]string
	c        *console.Console
}

func newBench(t *testing.T) *bench {
	t.Helper()
	s := httptest.NewServer(&fakeServer{})
	t.Cleanup(s.Close)
	b := &bench{env: map[string]string{"KICI_URL": s.URL, "KICI_TOKEN": "good", "HOME": t.TempDir()}}
	b.c = &console.Console{
		In: strings.NewReader("typed-secret\n"), Out: &b.out, Err: &b.err, Getenv: func(n string) string { return b.env[n] },
		Now: scriptedNow, Output: "table",
	}
	return b
}

func (b *bench) run(args ...string) int {
	b.out.Reset()
	b.err.Reset()
	c := *b.c // flags of one command must not reach the next
	return execute(context.Background(), &c, append([]string{"kici"}, args...), testInjected())
}

func testTree() *cobra.Command {
	c := &console.Console{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard, Getenv: func(string) string { return "" }, Now: scriptedNow}
	return tree(c, []string{"kici"}, testInjected())
}

// shownCommands are all commands but cobra's own and the second copy below admin, by their words.
func shownCommands(t *testing.T) map[string]*cobra.Command {
	t.Helper()
	out := map[string]*cobra.Command{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Name() == "help" || cmd.Name() == "completion" {
			return
		}
		words := strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), "kici"), " ")
		if strings.HasPrefix(words, "admin ") && words != "admin diagnose" {
			return
		}
		out[words] = cmd
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(testTree())
	if len(out) < 50 {
		t.Fatalf("only %d commands: the walk is wrong", len(out))
	}
	return out
}

func TestEveryCommandIsDescribed(t *testing.T) {
	for words, cmd := range shownCommands(t) {
		switch {
		case cmd.Short == "" || strings.HasSuffix(cmd.Short, "."):
			t.Errorf("%q: Short is %q", words, cmd.Short)
		case cmd.Long == "":
			t.Errorf("%q has no Long", words)
		case cmd.Example == "":
			t.Errorf("%q has no Example", words)
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%q: --%s is not described", words, f.Name)
			}
		})
	}
}

// noDocument are the commands that print no document: programs that run until they are stopped, texts that are documents of their
// own, and what only a person or a shell looks at.
var noDocument = []string{
	"agent", "run guard", "docs man", "docs markdown", "docs commands", "schema", "scaler schema", "run local", "run watch", "doctor",
	"init", "validate", "compile", "scaler validate", "scaler orphans", "scaler orphans list", "scaler reap-orphans", // of files; their own tests look at every format
	"login", "webhook send", "source install-hook",
	"job add", // of a running step; stepcmd's tests
}

// documents are arguments for every other command. Those under read have a golden file.
var documents = map[string]struct {
	args string
	read bool
}{
	"run list": {"", true}, "run show": {"acme/shop#482", true}, "run jobs": {"acme/shop#482", true}, "run timeline": {"acme/shop#482", true}, "run logs": {"acme/shop#482", false},
	"run cancel": {"acme/shop#482", false}, "run rerun": {"acme/shop#482", false}, "run start": {"ci", false}, "run purge-stale": {"", false}, "source purge-stale": {"", false},
	"job list": {"acme/shop#482", true}, "job show": {"job-build", true}, "job why": {"482/test (1.26)", true}, "job logs": {"job-build", false}, "why": {"482/test (1.26)", true},
	"queue list": {"", true}, "queue clear": {"--confirm", false}, "agent list": {"", true}, "agent show": {"scaler-bare-metal-1", true}, "scaler list": {"", true}, "scaler show": {"local", true}, "scaler reload": {"--dry-run", true},
	"agent token create": {"--labels linux", false}, "agent token list": {"", true}, "agent token revoke": {"a1", false},
	"delivery list": {"", true}, "delivery replay": {"d-1", false}, "token whoami": {"", true}, "delivery show": {"d-1", true},
	"event list": {"", true}, "event show": {"ev-1", true}, "event emit": {"deploy.done", false}, "event dlq list": {"", true}, "event dlq show": {"ev-3", true},
	"event dlq retry": {"ev-3", false}, "event dlq discard": {"ev-3", false}, "event dlq count": {"", true},
	"trust list": {"", true}, "trust add": {"shop deploy", false}, "trust remove": {"tr-1", false},
	"registration list": {"", true}, "registration show": {"nightly", true}, "registration register": {"shop nightly", false}, "registration refresh": {"shop", false},
	"registration enable": {"nightly", false}, "registration disable": {"nightly", false}, "registration delete": {"nightly --confirm", false},
	"registration run": {"nightly", false}, "schedule list": {"", true}, "schedule show": {"nightly", true},
	"source list": {"", true}, "source show": {"shop", true}, "source check": {"shop", true}, "source enable": {"shop", false}, "source disable": {"shop", false},
	"source trigger": {"shop", false}, "source remove": {"shop --confirm", false}, "source webhook-secret": {"shop", false},
	"secret list": {"", true}, "secret set": {"DEPLOY", false}, "secret delete": {"OLD", false},
	"token list": {"", true}, "token create": {"ci", false}, "token revoke": {"t2", false},
	"access-log list": {"", true}, "check-run list": {"", true}, "version": {"", false}, "dashboard": {"", false}, "logout": {"", false}, "admin diagnose": {"", true},
}

// Every command prints one document as JSON and as YAML, and nothing else on its standard output (CLI-4).
func TestEveryCommandPrintsADocument(t *testing.T) {
	b := newBench(t)
	for words, cmd := range shownCommands(t) {
		d, listed := documents[words]
		switch {
		case !cmd.Runnable() || cmd.HasSubCommands() || slices.Contains(noDocument, words):
			continue
		case !listed && strings.HasPrefix(words, "source "): // their own tests look at them
			continue
		case !listed:
			t.Errorf("%q: how it is called is not in documents, nor is it one of noDocument", words)
			continue
		}
		args := strings.Fields(words)
		if strings.Contains(d.args, "(") {
			args = append(args, d.args)
		} else {
			args = append(args, strings.Fields(d.args)...)
		}
		b.c.In = strings.NewReader("typed-secret\n")
		if code := b.run(append(args, "-o", "json")...); code != 0 && words != "admin diagnose" {
			t.Errorf("%q: exit %d: %s", words, code, &b.err)
			continue
		}
		checkJSON(t, words, b.out.Bytes())
		if d.read {
			golden(t, words, b.out.Bytes())
			b.run(append(args, "-o", "yaml")...)
			if err := yaml.Unmarshal(b.out.Bytes(), new(any)); err != nil || strings.HasPrefix(b.out.String(), "{") {
				t.Errorf("%q is no YAML: %v\n%s", words, err, &b.out)
			}
		}
		if code := b.run(append(args, "-o", "toml")...); code != console.ExitUsage {
			t.Errorf("%q: exit %d for a format that does not exist", words, code)
		}
	}
}

// checkJSON takes one document, or one a line as logs are.
func checkJSON(t *testing.T, words string, out []byte) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(out))
	for n := 0; ; n++ {
		err := d.Decode(new(any))
		if err == io.EOF && n > 0 {
			return
		}
		if err != nil {
			t.Errorf("%q is no JSON: %v\n%s", words, err, out)
			return
		}
	}
}

// golden compares with testdata/golden; -update rewrites it.
func golden(t *testing.T, words string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", "golden", strings.ReplaceAll(words, " ", "-")+".json")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%q differs from %s (-update rewrites it): %v\n%s", words, path, err, got)
	}
}

func TestExitCodes(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		code int
		args string
	}{
		{0, "run list"},
		{0, "help"},
		{0, "run"},
		{0, "--version"},
		{1, "run show nothing"},
		{1, "run watch acme/shop#482"},
		{1, "token revoke t1"},
		{1, "run list --server http://127.0.0.1:1"},
		{2, "admin diagnose --server http://127.0.0.1:1"},
		{64, "run lsit"},
		{64, "run list --limit x"},
		{64, "run list --nonsense"},
		{64, "run show a b"},
		{64, "run cancel"},
		{64, "run list -o toml"},
		{64, "run list --status done"},
		{64, "nonsense"},
		{64, "run list --server ftp://x"},

		{64, "run local -j 0"},
	} {
		if got := b.run(strings.Fields(c.args)...); got != c.code {
			t.Errorf("kici %s: exit %d, want %d: %s", c.args, got, c.code, &b.err)
		}
		if c.code != 0 && c.args != "run watch acme/shop#482" && b.err.Len() == 0 {
			t.Errorf("kici %s says nothing", c.args)
		}
	}
}

// The scripts that shells load are right by the shells' own word.
func TestCompletionScripts(t *testing.T) {
	for _, c := range []struct {
		shell string
		check []string
	}{{"bash", []string{"bash", "-n"}}, {"zsh", []string{"zsh", "-n"}}, {"fish", []string{"fish", "--no-execute"}}, {"powershell", nil}} {
		b := newBench(t)
		if code := b.run("completion", c.shell); code != 0 || b.out.Len() < 1000 {
			t.Errorf("%s: exit %d, %d bytes", c.shell, code, b.out.Len())
			continue
		}
		if c.check == nil {
			continue
		}
		if _, err := exec.LookPath(c.check[0]); err != nil {
			t.Logf("%s is not installed: its script is not checked", c.check[0])
			continue
		}
		file := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(file, b.out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(c.check[0], append(c.check[1:], file)...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", c.shell, err, out)
		}
	}
}

func TestPages(t *testing.T) {
	dir := t.TempDir()
	b := newBench(t)
	if b.run("docs", "man", filepath.Join(dir, "man1")) != 0 || b.run("docs", "markdown", filepath.Join(dir, "md")) != 0 {
		t.Fatal(b.err.String())
	}
	man, _ := filepath.Glob(filepath.Join(dir, "man1", "*.1"))
	pages, _ := filepath.Glob(filepath.Join(dir, "md", "*.md"))
	if len(man) < 40 || len(man) != len(pages) {
		t.Errorf("%d man pages, %d in Markdown", len(man), len(pages))
	}
	for file, want := range map[string]string{"man1/kici-run-list.1": ".SH EXAMPLES", "md/kici-run-list.md": "## Examples", "md/kici-run.md": "(kici-run-list.md)"} {
		if text, _ := os.ReadFile(filepath.Join(dir, file)); !strings.Contains(string(text), want) {
			t.Errorf("%s has no %s:\n%s", file, want, text)
		}
	}
}
