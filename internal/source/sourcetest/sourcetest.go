// Package sourcetest is the conformance suite of sources: every adapter passes it.
package sourcetest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/source"
)

// Origin is a source with a repository of known content, made anew for each test:
//
//	first  — on the default branch: .kici/workflows/ci.yaml "one", a.txt, dir/b.txt
//	second — its child: .kici/workflows/ci.yaml "two", .kici/kici.lock.json "{}", dir/b.txt changed, c.txt added, a.txt gone;
//	         the default branch and the tag v1 are here
//	bare   — on the branch "empty": no .kici at all
type Origin struct {
	Source              source.Source
	First, Second, Bare string
	DefaultBranch       string
	Push                func(ref, before, after string) source.Delivery // as this kind of source receives it
	Break               func()                                          // makes the repository unreachable
}

// Run runs the suite. make is called for each part.
func Run(t *testing.T, make func(t *testing.T) Origin) {
	t.Helper()
	for name, part := range map[string]func(*testing.T, Origin){
		"resolve": resolve, "hostile refs": hostileRefs, "files": files, "changed files": changedFiles, "normalize": normalize,
		"hostile deliveries": hostileDeliveries, "unreachable": unreachable, "clone and check": cloneAndCheck,
	} {
		t.Run(name, func(t *testing.T) { part(t, make(t)) })
	}
}

const missing = "1234567890123456789012345678901234567890"

func resolve(t *testing.T, o Origin) {
	for ref, want := range map[string]source.Commit{
		o.DefaultBranch:                 {SHA: o.Second, Ref: "refs/heads/" + o.DefaultBranch},
		"refs/heads/" + o.DefaultBranch: {SHA: o.Second, Ref: "refs/heads/" + o.DefaultBranch},
		"v1":                            {SHA: o.Second, Ref: "refs/tags/v1"},
		o.First:                         {SHA: o.First},
		o.First[:12]:                    {SHA: o.First},
	} {
		got, err := o.Source.Resolve(t.Context(), ref)
		if err != nil || got.SHA != want.SHA || got.Ref != want.Ref || got.Title == "" || got.Author == "" || strings.Contains(got.Title, "\n") {
			t.Errorf("Resolve(%q) = %+v, %v; want %+v with title and author", ref, got, err, want)
		}
	}
	if b, err := o.Source.DefaultBranch(t.Context()); err != nil || b != o.DefaultBranch {
		t.Errorf("DefaultBranch = %q, %v", b, err)
	}
	for _, ref := range []string{"nothing", missing, "refs/heads/nothing"} {
		if _, err := o.Source.Resolve(t.Context(), ref); !errors.Is(err, source.ErrNotFound) || errors.Is(err, source.ErrUnreachable) {
			t.Errorf("Resolve(%q): %v, want ErrNotFound", ref, err)
		}
	}
}

func hostileRefs(t *testing.T, o Origin) {
	for _, ref := range []string{
		"", "$(touch pwned)", "../../x", "a\nb", "--upload-pack=touch pwned", "a b", "x\x00y", "HEAD~1", "@{u}", ":/", "^main",
		strings.Repeat("x", 1<<16),
	} {
		if c, err := o.Source.Resolve(t.Context(), ref); !errors.Is(err, source.ErrNotFound) {
			t.Errorf("Resolve(%q) = %+v, %v; want ErrNotFound", ref, c, err)
		}
	}
}

func files(t *testing.T, o Origin) {
	read := func(sha string) map[string]string {
		t.Helper()
		got, err := o.Source.Files(t.Context(), sha)
		if err != nil {
			t.Errorf("Files(%s): %v", sha, err)
		}
		out := map[string]string{}
		for _, f := range got {
			if f.Mode != "100644" {
				t.Errorf("%s has mode %s", f.Path, f.Mode)
			}
			out[f.Path] = string(f.Data)
		}
		return out
	}
	if got := read(o.First); len(got) != 1 || got[".kici/workflows/ci.yaml"] != "one" {
		t.Errorf("files of the first commit: %v", got)
	}
	if got := read(o.Second); len(got) != 2 || got[".kici/workflows/ci.yaml"] != "two" || got[".kici/kici.lock.json"] != "{}" {
		t.Errorf("files of the second commit: %v", got)
	}
	if got := read(o.Bare); len(got) != 0 {
		t.Errorf("files of a commit without .kici: %v", got)
	}
	if _, err := o.Source.Files(t.Context(), missing); !errors.Is(err, source.ErrNotFound) {
		t.Errorf("Files of no commit: %v, want ErrNotFound", err)
	}
}

func changedFiles(t *testing.T, o Origin) {
	want := map[string]bool{".kici/workflows/ci.yaml": true, ".kici/kici.lock.json": true, "dir/b.txt": true, "c.txt": true, "a.txt": true}
	got, err := o.Source.ChangedFiles(t.Context(), o.First, o.Second)
	if err != nil || len(got) != len(want) {
		t.Errorf("ChangedFiles = %v, %v", got, err)
	}
	for _, f := range got {
		if !want[f] {
			t.Errorf("%s did not change", f)
		}
	}
	if got, err := o.Source.ChangedFiles(t.Context(), o.Second, o.Second); err != nil || len(got) != 0 {
		t.Errorf("nothing changed: %v, %v", got, err)
	}
	for _, before := range []string{"", strings.Repeat("0", 40)} {
		if got, err := o.Source.ChangedFiles(t.Context(), before, o.Second); err != nil || len(got) == 0 {
			t.Errorf("ChangedFiles(%q): %v, %v; want the files of a new branch", before, got, err)
		}
	}
	if _, err := o.Source.ChangedFiles(t.Context(), missing, o.Second); !errors.Is(err, source.ErrNotFound) {
		t.Errorf("ChangedFiles from no commit: %v, want ErrNotFound", err)
	}
}

func normalize(t *testing.T, o Origin) {
	ev, err := o.Source.Normalize(t.Context(), o.Push("refs/heads/"+o.DefaultBranch, o.First, o.Second))
	if err != nil || ev.Type != "push" || ev.Branch != o.DefaultBranch || ev.SHA != o.Second || ev.Before != o.First ||
		ev.DefaultBranch != o.DefaultBranch || ev.Repo == "" || len(ev.Payload) == 0 {
		t.Errorf("push: %+v, %v", ev, err)
	}
	ev, err = o.Source.Normalize(t.Context(), o.Push("refs/tags/v1", "", o.Second))
	if err != nil || ev.Type != "tag" || ev.Tag != "v1" || ev.Branch != "" {
		t.Errorf("tag: %+v, %v", ev, err)
	}
	ev, err = o.Source.Normalize(t.Context(), o.Push("refs/heads/gone", o.First, strings.Repeat("0", 40)))
	if !errors.Is(err, source.ErrIgnored) || !ev.Deleted {
		t.Errorf("deleted branch: %+v, %v; want ErrIgnored", ev, err)
	}
}

func hostileDeliveries(t *testing.T, o Origin) {
	good := o.Push("refs/heads/"+o.DefaultBranch, o.First, o.Second)
	for name, d := range map[string]source.Delivery{
		"no event":       {Body: good.Body, Headers: good.Headers},
		"unknown event":  {Event: "mystery", Body: good.Body, Headers: good.Headers},
		"no body":        {Event: good.Event, Headers: good.Headers},
		"not JSON":       {Event: good.Event, Body: []byte("\xff{"), Headers: good.Headers},
		"wrong types":    {Event: good.Event, Body: []byte(`{"ref":7,"after":[]}`), Headers: good.Headers},
		"deep":           {Event: good.Event, Body: []byte(strings.Repeat(`{"ref":`, 100_000)), Headers: good.Headers},
		"option as ref":  o.Push("--upload-pack=x", o.First, o.Second),
		"range as ref":   o.Push("refs/heads/a..b", o.First, o.Second),
		"newline in ref": o.Push("refs/heads/a\nb", o.First, o.Second),
		"option as sha":  o.Push("refs/heads/x", o.First, "--output=pwned"),
		"ref as sha":     o.Push("refs/heads/x", o.First, o.DefaultBranch),
		"option before":  o.Push("refs/heads/x", "--output=pwned", o.Second),
	} {
		ev, err := o.Source.Normalize(t.Context(), d)
		if !errors.Is(err, source.ErrInvalid) && !errors.Is(err, source.ErrIgnored) {
			t.Errorf("%s: %+v, %v; want ErrInvalid or ErrIgnored", name, ev, err)
		}
	}
}

func unreachable(t *testing.T, o Origin) {
	o.Break()
	check := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, source.ErrUnreachable) || errors.Is(err, source.ErrNotFound) {
			t.Errorf("%s: %v, want ErrUnreachable", what, err)
		}
	}
	_, err := o.Source.Resolve(t.Context(), o.DefaultBranch)
	check("Resolve", err)
	_, err = o.Source.Files(t.Context(), o.Second)
	check("Files", err)
	_, err = o.Source.ChangedFiles(t.Context(), o.First, o.Second)
	check("ChangedFiles", err)
	check("Check", o.Source.Check(t.Context()))
}

func cloneAndCheck(t *testing.T, o Origin) {
	if !o.Source.HasRepo() {
		t.Error("HasRepo is false")
	}
	if err := o.Source.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
	if c, err := o.Source.Clone(t.Context()); err != nil || c.URL == "" {
		t.Errorf("Clone = %+v, %v", c, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := o.Source.Resolve(ended, o.DefaultBranch); err == nil {
		t.Error("Resolve ignores its context")
	}
}
