package sourcetest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/source"
)

// Fake is a source in memory, for tests and simulation. It passes the suite.
type Fake struct {
	mu      sync.Mutex
	config  source.Config
	branch  string // default branch
	commits map[string]fakeCommit
	refs    map[string]string // full ref → commit
	fail    error
	calls   map[string]int
}

type fakeCommit struct {
	source.Commit
	files map[string]string // whole tree
}

// Configure says which stored source this is, and its default branch.
func (f *Fake) Configure(c source.Config, branch string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.config, f.branch = c, branch
}

func (f *Fake) settings() (source.Config, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.config, f.branch
}

// Commit adds a commit with a whole tree, moves ref to it when ref is not "", and returns its id.
func (f *Fake) Commit(ref, title string, files map[string]string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.commits == nil {
		f.commits, f.refs, f.calls = map[string]fakeCommit{}, map[string]string{}, map[string]int{}
	}
	sha := fmt.Sprintf("%07x%033x", 0xabc0000+len(f.commits), 0) // distinct in the first digits, so that an abbreviation names one
	f.commits[sha] = fakeCommit{source.Commit{SHA: sha, Title: title, Author: "fake"}, files}
	if ref != "" {
		f.refs[ref] = sha
	}
	return sha
}

// Fail makes every method that reaches the repository fail; nil heals it.
func (f *Fake) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

// Calls counts how often a method was called.
func (f *Fake) Calls(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

// reach is the door to the repository.
func (f *Fake) reach(ctx context.Context, method string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[method]++
	if err := ctx.Err(); err != nil {
		return err
	}
	return f.fail
}

// HasRepo is true.
func (f *Fake) HasRepo() bool { return true }

// Resolve implements source.Source.
func (f *Fake) Resolve(ctx context.Context, ref string) (source.Commit, error) {
	if err := f.reach(ctx, "Resolve"); err != nil {
		return source.Commit{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, full := range []string{ref, "refs/heads/" + ref, "refs/tags/" + ref} {
		if sha, ok := f.refs[full]; ok {
			c := f.commits[sha].Commit
			c.Ref = full
			return c, nil
		}
	}
	for sha, c := range f.commits {
		if len(ref) >= 7 && strings.HasPrefix(sha, ref) {
			return c.Commit, nil
		}
	}
	return source.Commit{}, fmt.Errorf("%q: %w", ref, source.ErrNotFound)
}

func (f *Fake) tree(sha string) (map[string]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, ok := f.commits[sha]
	if !ok {
		return nil, fmt.Errorf("%q: %w", sha, source.ErrNotFound)
	}
	return c.files, nil
}

// Files implements source.Source.
func (f *Fake) Files(ctx context.Context, sha string) ([]source.File, error) {
	if err := f.reach(ctx, "Files"); err != nil {
		return nil, err
	}
	tree, err := f.tree(sha)
	var out []source.File
	for path, text := range tree {
		if strings.HasPrefix(path, ".kici/") {
			out = append(out, source.File{Path: path, Mode: "100644", Data: []byte(text)})
		}
	}
	slices.SortFunc(out, func(a, b source.File) int { return strings.Compare(a.Path, b.Path) })
	return out, err
}

// ChangedFiles implements source.Source.
func (f *Fake) ChangedFiles(ctx context.Context, before, after string) ([]string, error) {
	if err := f.reach(ctx, "ChangedFiles"); err != nil {
		return nil, err
	}
	var old map[string]string
	var err error
	if strings.Trim(before, "0") != "" {
		if old, err = f.tree(before); err != nil {
			return nil, err
		}
	}
	now, err := f.tree(after)
	if err != nil {
		return nil, err
	}
	var out []string
	for path, text := range now {
		if was, ok := old[path]; !ok || was != text {
			out = append(out, path)
		}
	}
	for path := range old {
		if _, ok := now[path]; !ok {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return out, nil
}

// DefaultBranch implements source.Source.
func (f *Fake) DefaultBranch(ctx context.Context) (string, error) {
	_, branch := f.settings()
	return branch, f.reach(ctx, "DefaultBranch")
}

// Clone implements source.Source.
func (f *Fake) Clone(context.Context) (source.Clone, error) {
	c, _ := f.settings()
	return source.Clone{URL: "fake://" + c.Name}, nil
}

// Check implements source.Source.
func (f *Fake) Check(ctx context.Context) error { return f.reach(ctx, "Check") }

// Normalize understands source.Payload under the event "push".
func (f *Fake) Normalize(_ context.Context, d source.Delivery) (ci.Event, error) {
	c, branch := f.settings()
	ev := ci.Event{Source: c.Name, Repo: c.Repo, DefaultBranch: branch, Payload: d.Body}
	var p source.Payload
	if d.Event != "push" {
		return ev, fmt.Errorf("%w: %q", source.ErrIgnored, d.Event)
	}
	if err := json.Unmarshal(d.Body, &p); err != nil {
		return ev, fmt.Errorf("%w: %w", source.ErrInvalid, err)
	}
	ev.Ref, ev.SHA, ev.Before, ev.Actor = p.Ref, p.After, p.Before, p.Pusher.Name
	switch {
	case strings.HasPrefix(p.Ref, "refs/heads/"):
		ev.Type, ev.Branch = "push", p.Ref[len("refs/heads/"):]
	case strings.HasPrefix(p.Ref, "refs/tags/"):
		ev.Type, ev.Tag = "tag", p.Ref[len("refs/tags/"):]
	default:
		return ev, fmt.Errorf("%w: ref %q", source.ErrInvalid, p.Ref)
	}
	if strings.ContainsAny(p.Ref, "\n ") || strings.Contains(p.Ref, "..") || !hexID(p.After) || p.Before != "" && !hexID(p.Before) {
		return ev, fmt.Errorf("%w: %+v", source.ErrInvalid, p)
	}
	if strings.Trim(p.After, "0") == "" {
		ev.Deleted = true
		return ev, fmt.Errorf("%w: deleted", source.ErrIgnored)
	}
	return ev, nil
}

func hexID(s string) bool { return len(s) == 40 && strings.Trim(s, "0123456789abcdef") == "" }

// Intake implements source.Receiver: a Fake takes what is signed with its secret "webhook", or anything when it has none.
func (f *Fake) Intake() source.Intake {
	c, _ := f.settings()
	return source.Intake{MaxBody: 1 << 20, DedupMs: 300_000, Secret: c.Secrets["webhook"] != ""}
}

// Verify implements source.Receiver.
func (f *Fake) Verify(r source.Request) error {
	c, _ := f.settings()
	if secret := c.Secrets["webhook"]; secret != "" && !source.VerifySignature(secret, r.Header.Get(source.SignatureHeader), r.Body) {
		return source.ErrUnauthorized
	}
	return nil
}

// Read implements source.Receiver.
func (f *Fake) Read(r source.Request) (source.Received, error) {
	return source.Received{Delivery: source.Delivery{
		ID: source.SenderID(r.Header), Event: r.Header.Get("X-Event-Type"), Headers: source.StoredHeaders(r.Header, source.Stripped...), Body: r.Body,
	}}, nil
}
