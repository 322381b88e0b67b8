package plan

import (
	"fmt"
	"strings"

	"github.com/kici-go/kici/internal/workflow/expr"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// maxGroupBytes bounds the name of a concurrency group, so that it fits an index.
const maxGroupBytes = 400

// Group is a concurrency group as its owner's workflow asks for it, evaluated.
type Group struct {
	Key    string // without case
	Max    int    // owners that may go on at the same time, at least 1
	Cancel bool   // a newer owner ends older ones until it fits
}

// group evaluates concurrency. It returns nil for none, also when the name comes out empty: nobody is waited for then.
func (f Facts) group(c *lock.Concurrency) (*Group, *Failure) {
	if c == nil {
		return nil, nil
	}
	key, err := expr.Interpolate(c.Group, expr.Env{Contexts: f.Contexts()})
	if err != nil {
		return nil, &Failure{InitEval, fmt.Sprintf("concurrency.group: %v", err)}
	}
	key = strings.ToLower(strings.Join(strings.Fields(key), " "))
	switch {
	case key == "":
		return nil, nil
	case len(key) > maxGroupBytes:
		return nil, &Failure{InitEval, fmt.Sprintf("concurrency.group: the name %q is longer than %d bytes", clip(key, 40), maxGroupBytes)}
	}
	return &Group{Key: key, Max: max(c.Max, 1), Cancel: c.CancelInProgress}, nil
}

// Place is a place in a concurrency group that somebody holds or waits for.
type Place struct {
	ID      string
	Max     int  // of its owner's workflow
	Active  bool // held; otherwise waited for
	Leaving bool // its owner is ending, or is to be ended: a held one still counts, a waiting one does not
}

// Join decides about a newcomer that asks for g; places are the others', oldest first. It takes a place at once when nobody
// waits before it and the group has room, otherwise it waits. With g.Cancel everybody who waits and, oldest first, as many of
// those who hold a place as it needs are to be ended for it (CON-2); it waits until they are gone, because a group never holds more
// than its maximum.
//
// Owners may differ in the maximum. The smallest of those that hold a place and the one that wants to is what counts, so that no
// owner ever shares the group with more than its own workflow allows.
func Join(places []Place, g Group) (active bool, superseded []string) {
	staying, limit, waiting := 0, g.Max, false
	for _, p := range places {
		if p.Active && !p.Leaving {
			staying++
			limit = min(limit, p.Max)
		}
	}
	for _, p := range places {
		switch {
		case p.Leaving:
		case !g.Cancel:
			waiting = waiting || !p.Active
		case !p.Active:
			superseded = append(superseded, p.ID)
		case staying+1 > limit:
			superseded = append(superseded, p.ID)
			staying--
		}
	}
	return !waiting && fits(places, g.Max), superseded
}

// Promote says which of those who wait may go on, strictly first come, first served (CON-4).
func Promote(places []Place) []string {
	var out []string
	held := make([]Place, 0, len(places))
	for _, p := range places {
		if p.Active {
			held = append(held, p)
		}
	}
	for _, p := range places {
		if p.Active || p.Leaving {
			continue
		}
		if !fits(held, p.Max) {
			return out
		}
		p.Active = true
		held = append(held, p)
		out = append(out, p.ID)
	}
	return out
}

// fits reports whether one more owner, with this maximum, may hold a place beside those who do.
func fits(places []Place, limit int) bool {
	n := 1
	for _, p := range places {
		if p.Active {
			n++
			limit = min(limit, p.Max)
		}
	}
	return n <= limit
}
