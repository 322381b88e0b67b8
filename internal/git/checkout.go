package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Checkout puts exactly one commit into an empty directory.
//
// Credentials never stand in an argument, in the repository's configuration or in the environment of anything that runs later
// (Remote). Submodules and LFS objects are not fetched.
type Checkout struct {
	Remote
	Dir     string // an existing, empty directory
	SHA     string
	Ref     string    // full ref the commit was seen on, "" when unknown; only a name for people
	TempDir string    // where an SSH key is kept while git runs; "" is the system's
	Output  io.Writer // what is done, for people; nil discards it
}

// Attempts of a fetch that fails for a passing reason, and the pause between them.
const (
	fetchAttempts = 3
	fetchPause    = 2 * time.Second
)

// ErrNoCommit means that the repository answered and does not have the commit.
var ErrNoCommit = errors.New("the commit is not in the repository")

// Run fetches the commit alone; where the server refuses that, all branches and tags. It verifies that the directory
// stands at the commit. Errors are ErrNoCommit, ErrDenied, ErrHostKey, ErrUnreachable or of this machine.
func (c Checkout) Run(ctx context.Context) error {
	if err := c.get(ctx); err != nil {
		return err
	}
	if err := c.git(ctx, "checkout", "--quiet", "--progress", "--force", "--detach", c.SHA, "--"); err != nil {
		return c.lacks(err)
	}
	return c.verify()
}

// get makes the repository and fetches the commit into it.
func (c Checkout) get(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	c.say("Fetching %s from %s\n", c.SHA, Redact(c.URL))
	if err := c.initialise(ctx); err != nil {
		return err
	}
	err := c.retry(ctx, c.fetchCommit)
	if refusesCommit(err) {
		c.say("The server does not give out single commits; fetching all branches and tags\n")
		err = c.retry(ctx, c.fetchAll)
	}
	if err != nil {
		return c.explain(err)
	}
	return nil
}

// lacks gives its meaning to a failure to read the commit that was fetched.
func (c Checkout) lacks(err error) error {
	if unknownCommit(err) {
		return fmt.Errorf("%w: %s; its branch was perhaps deleted or force-pushed since", ErrNoCommit, c.SHA)
	}
	return err
}

func (c Checkout) check() error {
	if err := CheckURL(c.URL); err != nil {
		return err
	}
	if err := CheckSHA(c.SHA); err != nil {
		return err
	}
	if c.Ref == "" {
		return nil
	}
	if err := CheckRef(c.Ref); err != nil {
		return err
	}
	if !strings.HasPrefix(c.Ref, "refs/") {
		return fmt.Errorf("%w: ref %q does not begin with refs/", ErrName, c.Ref)
	}
	return nil
}

func (c Checkout) initialise(ctx context.Context) error {
	format := "sha1"
	if len(c.SHA) == 64 {
		format = "sha256"
	}
	if err := c.git(ctx, "init", "--quiet", "--object-format="+format, "--initial-branch=main"); err != nil {
		return err
	}
	// Written by hand: it saves a process, and the address must be without its credential.
	f, err := os.OpenFile(filepath.Join(c.Dir, ".git", "config"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("record origin: %w", err)
	}
	defer f.Close()
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	_, err = fmt.Fprintf(f, "[remote \"origin\"]\n\turl = \"%s\"\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n",
		quote.Replace(Redact(c.URL)))
	if err != nil {
		return fmt.Errorf("record origin: %w", err)
	}
	return nil
}

func (c Checkout) fetchCommit(ctx context.Context) error {
	return c.fetch(ctx, "--depth=1", "+"+c.SHA+":"+c.localRef())
}

func (c Checkout) fetchAll(ctx context.Context) error {
	specs := []string{"+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"}
	if c.Ref != "" && !strings.HasPrefix(c.Ref, "refs/heads/") && !strings.HasPrefix(c.Ref, "refs/tags/") {
		// A pull request's ref may be gone by now; the commit can still be on a branch.
		err := c.fetch(ctx, append(specs, "+"+c.Ref+":"+c.localRef())...)
		if err == nil || !strings.Contains(err.Error(), "couldn't find remote ref") {
			return err
		}
	}
	return c.fetch(ctx, specs...)
}

// localRef is where the commit is kept, so that a person in the workspace finds it by its usual name.
func (c Checkout) localRef() string {
	if branch, ok := strings.CutPrefix(c.Ref, "refs/heads/"); ok {
		return "refs/remotes/origin/" + branch
	}
	if strings.HasPrefix(c.Ref, "refs/tags/") {
		return c.Ref
	}
	return "refs/kici/commit"
}

// fetch takes an optional --depth first, then refspecs.
func (c Checkout) fetch(ctx context.Context, args ...string) error {
	with, done, err := c.open(keyFiles{Dir: c.TempDir})
	if err != nil {
		return err
	}
	defer done()
	cmd := []string{"fetch", "--progress", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--force"}
	if strings.HasPrefix(args[0], "--depth") {
		cmd, args = append(cmd, args[0]), args[1:]
	}
	cmd = append(cmd, c.localServer()...)
	cmd = append(cmd, "--end-of-options", Redact(c.URL))
	return c.gitWith(ctx, with, append(cmd, args...)...)
}

func (c Checkout) git(ctx context.Context, args ...string) error {
	return c.gitWith(ctx, Cmd{}, args...)
}

func (c Checkout) gitWith(ctx context.Context, with Cmd, args ...string) error {
	with.Dir, with.Args = c.Dir, args
	with.SafeDirs = []string{c.Dir}
	if c.Output != nil {
		p := newProgress(c.Output, time.Now, c.scrub)
		defer p.Flush()
		with.Stderr = p
	}
	_, err := Run(ctx, with)
	return err
}

func (c Checkout) verify() error {
	head, err := os.ReadFile(filepath.Join(c.Dir, ".git", "HEAD"))
	if err != nil {
		return fmt.Errorf("verify checkout: %w", err)
	}
	if got := strings.TrimSpace(string(head)); got != c.SHA {
		return fmt.Errorf("verify checkout: HEAD is %q, not %s", got, c.SHA)
	}
	c.say("HEAD is now at %s\n", c.SHA)
	return nil
}

func (c Checkout) retry(ctx context.Context, f func(context.Context) error) error {
	for attempt := 1; ; attempt++ {
		err := f(ctx)
		if err == nil || attempt == fetchAttempts || !transient(err) {
			return err
		}
		c.say("Trying again in %s (%d of %d)\n", fetchPause, attempt+1, fetchAttempts)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(fetchPause):
		}
	}
}

func (c Checkout) say(format string, args ...any) {
	if c.Output != nil {
		_, _ = fmt.Fprintf(c.Output, format, args...)
	}
}

func stderrOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Stderr
	}
	return ""
}

func containsAny(s string, parts ...string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}

// refusesCommit: the server speaks, but not about single commits, or not about shallow histories.
func refusesCommit(err error) bool {
	return containsAny(stderrOf(err), "not our ref", "unadvertised object", "couldn't find remote ref", "shallow capabilities",
		"Server does not support shallow", "no such ref", "Cannot obtain needed object")
}

func unknownCommit(err error) bool {
	return containsAny(stderrOf(err), "reference is not a tree", "unable to read tree", "did not match any file",
		"not a tree object", "invalid reference", "not a commit")
}

func transient(err error) bool {
	return containsAny(stderrOf(err), "Could not resolve host", "Connection refused", "Connection reset", "Connection timed out",
		"Operation timed out", "early EOF", "unexpected disconnect", "hung up unexpectedly", "returned error: 5",
		"returned error: 429", "Temporary failure")
}
