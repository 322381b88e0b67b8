package web

import (
	"net/http"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/access"
)

// place is one section of the navigation. It is shown to who may go there.
type place struct {
	id, name, path, key string
	need                access.Permission
	unscoped            bool // not for a token that is limited to one source (ADM-5)
}

// placeGroup is the places of one kind.
type placeGroup struct {
	name   string
	places []place
}

// navEvents is the section that bears the count of dead letters.
const navEvents = "events"

// navigation is every section: what happens, what makes it happen, and what it runs on.
var navigation = []placeGroup{
	{"Work", []place{
		{id: "runs", name: "Runs", path: "/runs", key: "r", need: access.RunRead},
		{id: "queue", name: "Queue", path: "/queue", key: "q", need: access.RunRead},
		{id: "deliveries", name: "Deliveries", path: "/deliveries", key: "d", need: access.EventLogRead},
		{id: navEvents, name: "Events", path: "/events", key: "e", need: access.EventDLQRead},
	}},
	{"Setup", []place{
		{id: "sources", name: "Sources", path: "/sources", key: "o", need: access.ContextRead},
		{id: "workflows", name: "Workflows", path: "/workflows", key: "w", need: access.ContextRead},
		{id: "schedules", name: "Schedules", path: "/schedules", key: "c", need: access.ContextRead},
	}},
	{"System", []place{
		{id: "agents", name: "Agents", path: "/agents", key: "a", need: access.ScalerRead},
		{id: "scalers", name: "Scalers", path: "/scalers", key: "s", need: access.ScalerRead},
		{id: "instances", name: "Instances", path: "/instances", key: "i", need: access.RunRead},
		{id: "settings", name: "Settings", path: "/settings", key: "p", need: access.SecretRead, unscoped: true},
		{id: "access-log", name: "Access log", path: "/access-log", key: "l", need: access.AccessLogRead, unscoped: true},
	}},
}

// placesOf is the navigation of one caller.
func placesOf(c caller) (out []placeGroup) {
	for _, g := range navigation {
		g.places = slices.DeleteFunc(slices.Clone(g.places), func(s place) bool { return !c.Can(s.need) || s.unscoped && c.Scoped() })
		if len(g.places) > 0 {
			out = append(out, g)
		}
	}
	return out
}

// here names the section that a page belongs to.
func (p page) here() string {
	for _, g := range p.Places {
		for _, s := range g.places {
			if s.id == p.Nav {
				return s.name
			}
		}
	}
	return "Menu"
}

// isPlace reports whether a path is a section's, or below it.
func isPlace(path string) bool {
	for _, g := range navigation {
		for _, s := range g.places {
			if path == s.path || len(path) > len(s.path) && path[:len(s.path)+1] == s.path+"/" {
				return true
			}
		}
	}
	return false
}

// tab is a page of a section that has several.
type tab struct {
	name, path string
	here       bool
}

// deadLetters counts for the navigation; a count that cannot be had is none.
func (s *server) deadLetters(r *http.Request, c caller) int64 {
	if !c.Can(access.EventDLQRead) || strings.HasSuffix(r.URL.Path, "/live") {
		return 0
	}
	n, err := s.Reads.DeadLetterCount(r.Context(), c.scope)
	if err != nil {
		s.Log.Debug("count dead letters", "err", err)
	}
	return n.Count
}

func deadTitle(n int64) string {
	return count(int(n), "event could not be routed", "events could not be routed")
}
