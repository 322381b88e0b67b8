package workflow

import (
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/workflow/lock"
	"github.com/kici-go/kici/internal/workflow/suggest"
)

// filters is object, but nothing at all means no filters.
func (d *decoder) filters(v value, what keys, f func(key string, v value)) {
	if !v.isNull() {
		d.object(v, what, f)
	}
}

// each reads a trigger that may stand there several times, as a list.
func (d *decoder) each(v value, f func(v value) lock.Trigger) []lock.Trigger {
	if v.n.Kind != sequenceKind {
		return []lock.Trigger{f(v)}
	}
	var out []lock.Trigger
	d.list(v, false, func(_ int, v value) { out = append(out, f(v)) })
	return out
}

// exclusive reports a filter beside its own -ignore.
func (d *decoder) exclusive(v value, key string, seen map[string]bool) {
	base := strings.TrimSuffix(key, "-ignore")
	if seen[base] && seen[base+"-ignore"] {
		d.errorf(v, "use "+base+" alone; its patterns may begin with !", "%s and %s-ignore cannot be used together", base, base)
	}
}

// patterns reads globs of branches or tags; those of an -ignore key become exclusions from everything.
func (d *decoder) patterns(v value, key string) []string {
	ignore := strings.HasSuffix(key, "-ignore")
	out := d.globs(v, ignore)
	if ignore && len(out) > 0 {
		return append([]string{"**"}, out...)
	}
	positive := func(p string) bool { return !strings.HasPrefix(p, "!") }
	if len(out) > 0 && !slices.ContainsFunc(out, positive) {
		d.errorf(v, "put '**' first, or use "+key+"-ignore", "%s only excludes, so nothing would match", key)
	}
	return out
}

// paths reads globs of files; those of paths-ignore become exclusions (WF-14).
func (d *decoder) paths(v value, key string) []string {
	return d.globs(v, strings.HasSuffix(key, "-ignore"))
}

func (d *decoder) globs(v value, ignore bool) []string {
	var out []string
	d.list(v, true, func(_ int, v value) {
		s, ok := d.word(v)
		if !ok {
			return
		}
		if ignore {
			if strings.HasPrefix(s, "!") {
				d.errorf(v, "remove the !", "patterns of an -ignore filter exclude already")
				return
			}
			s = "!" + s
		}
		if err := checkGlob(s); err != nil {
			d.errorf(v, "", "invalid pattern %q: %s", short(s), err)
			return
		}
		out = append(out, s)
	})
	if len(out) == 0 && v.n.Kind == sequenceKind && len(v.n.Content) == 0 {
		d.errorf(v, "remove it, or list patterns", "%s is empty", v.last())
	}
	return out
}

// choices reads words that must be known.
func (d *decoder) choices(v value, known []string) []string {
	var out []string
	d.list(v, true, func(_ int, v value) {
		s, ok := d.word(v)
		if ok && !slices.Contains(known, s) {
			d.errorf(v, suggest.Cure(s, known), "%q is not one of the known words of %s", short(s), v.last())
		}
		if ok {
			out = append(out, s)
		}
	})
	return out
}

// statuses reads stored statuses; GitHub's "failure" is "failed".
func (d *decoder) statuses(v value, known []string) []string {
	out := d.choices(v, append([]string{"failure"}, known...))
	for i, s := range out {
		if s == "failure" {
			out[i] = "failed"
		}
	}
	return out
}
