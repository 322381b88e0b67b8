package git

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// listTimeout bounds a question about refs.
const listTimeout = 2 * time.Minute

// Heads lists branches and tags with their commits, by full ref; it asks the remote. More than MaxOutput bytes of them (about
// half a million) are ErrTooBig. A tag of something else than a commit is listed with that something.
func (m *Mirror) Heads(ctx context.Context, remote Remote) (map[string]string, error) {
	out, err := m.list(ctx, remote, []string{"--heads", "--tags"})
	if err != nil {
		return nil, err
	}
	refs, _ := parseRefs(out)
	return refs, nil
}

// DefaultBranch returns the short name of the branch that the remote's HEAD names; it asks the remote. An empty repository has
// none: ErrNotFound.
func (m *Mirror) DefaultBranch(ctx context.Context, remote Remote) (string, error) {
	out, err := m.list(ctx, remote, []string{"--symref"}, "HEAD", "refs/heads/main", "refs/heads/master")
	if err != nil {
		return "", err
	}
	refs, head := parseRefs(out)
	if head == "" && refs["HEAD"] != "" { // a server too old to say
		for _, usual := range []string{"refs/heads/main", "refs/heads/master"} {
			if refs[usual] == refs["HEAD"] {
				head = usual
			}
		}
	}
	branch, ok := strings.CutPrefix(head, "refs/heads/")
	if !ok {
		return "", fmt.Errorf("default branch: %w", ErrNotFound)
	}
	return branch, nil
}

// tips asks the remote for some refs, by full name; those that are not there are missing from the answer.
func (m *Mirror) tips(ctx context.Context, remote Remote, names ...string) (map[string]string, error) {
	var patterns []string
	only := []string{"--heads", "--tags"} // spares the server the rest, such as a ref for each pull request
	for _, name := range names {
		if name != "HEAD" && !strings.HasPrefix(name, "refs/") {
			continue // an abbreviated id
		}
		if !strings.HasPrefix(name, "refs/heads/") && !strings.HasPrefix(name, "refs/tags/") {
			only = nil
		}
		patterns = append(patterns, name, name+"^{}")
	}
	out, err := m.list(ctx, remote, only, patterns...)
	if err != nil {
		return nil, err
	}
	refs, _ := parseRefs(out)
	return refs, nil // patterns match the ends of names too; who asks takes the exact one
}

// list runs ls-remote, outside any repository.
func (m *Mirror) list(ctx context.Context, remote Remote, flags []string, patterns ...string) ([]byte, error) {
	with, done, err := m.reach(remote)
	if err != nil {
		return nil, err
	}
	defer done()
	timed, cancel := context.WithTimeoutCause(ctx, listTimeout, fmt.Errorf("%w: no answer within %s", ErrUnreachable, listTimeout))
	defer cancel()
	with.Args = append([]string{"ls-remote", "--quiet"}, flags...)
	with.Args = append(with.Args, remote.localServer()...)
	with.Args = append(with.Args, "--end-of-options", Redact(remote.URL))
	with.Args = append(with.Args, patterns...)
	out, err := Run(timed, with)
	switch {
	case ctx.Err() != nil:
		return nil, gaveUp(ctx)
	case errors.Is(err, ErrTooLarge):
		return nil, fmt.Errorf("the list of refs: %w", ErrTooBig)
	}
	return out, remote.explain(err)
}

// reach checks the remote and prepares a command that reaches it.
func (m *Mirror) reach(remote Remote) (Cmd, func(), error) {
	if m.err != nil {
		return Cmd{}, nil, m.err
	}
	if err := CheckURL(remote.URL); err != nil {
		return Cmd{}, nil, err
	}
	if err := m.set.prepare(); err != nil {
		return Cmd{}, nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return remote.open(keyFiles{Dir: m.set.keys(), Known: m.known()})
}

// gaveUp is the error of a caller that no longer waits.
func gaveUp(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ErrUnreachable, context.Cause(ctx))
}

// parseRefs reads what ls-remote prints, with annotated tags replaced by what they name. head is the target of HEAD, if told.
// Lines that are no refs are left out: a server may say anything.
func parseRefs(out []byte) (refs map[string]string, head string) {
	refs = map[string]string{}
	for line := range strings.Lines(string(out)) {
		sha, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if target, is := strings.CutPrefix(sha, "ref: "); is && name == "HEAD" && CheckRef(target) == nil {
			head = target
			continue
		}
		name, peeled := strings.CutSuffix(name, "^{}")
		if !ok || CheckSHA(sha) != nil || CheckRef(name) != nil {
			continue
		}
		if _, known := refs[name]; !known || peeled {
			refs[name] = sha
		}
	}
	return refs, head
}
