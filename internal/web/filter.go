package web

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read"
)

// runFilter is what the list of runs shows; it travels in the query.
type runFilter struct{ Status, Repo, Workflow, Branch, Actor, Event, Text, Cursor string }

// maxFilter bounds a filter's text in bytes; the API has the same bound for most.
const maxFilter = 500

func filterOf(q url.Values) runFilter {
	get := func(name string) string {
		v := strings.TrimSpace(q.Get(name))
		return strings.ToValidUTF8(v[:min(len(v), maxFilter)], "")
	}
	return runFilter{
		Status: get("status"), Repo: get("repo"), Workflow: get("workflow"), Branch: get("branch"), Actor: get("actor"),
		Event: get("event"), Text: get("q"), Cursor: get("cursor"),
	}
}

func (f *runFilter) fields() []struct {
	name, label string
	value       *string
} {
	return []struct {
		name, label string
		value       *string
	}{
		{"status", "status", &f.Status},
		{"repo", "repository", &f.Repo},
		{"workflow", "workflow", &f.Workflow},
		{"branch", "branch", &f.Branch},
		{"actor", "by", &f.Actor},
		{"event", "event", &f.Event},
		{"q", "matching", &f.Text},
		{"cursor", "", &f.Cursor},
	}
}

func (f runFilter) query() string {
	q := url.Values{}
	for _, x := range f.fields() {
		if *x.value != "" {
			q.Set(x.name, *x.value)
		}
	}
	return q.Encode()
}

// with returns the filter with one field changed, at the first page unless that is the change.
func (f runFilter) with(field, value string) runFilter {
	f.Cursor = ""
	for _, x := range f.fields() {
		if x.name == field {
			*x.value = value
		}
	}
	return f
}

// chips are the fields that are set beside the status: name, label, value.
func (f runFilter) chips() (out [][3]string) {
	for _, x := range f.fields() {
		if *x.value != "" && x.name != "status" && x.name != "cursor" {
			out = append(out, [3]string{x.name, x.label, *x.value})
		}
	}
	return out
}

func (f runFilter) any() bool {
	f.Cursor = ""
	return f != runFilter{}
}

// detailed reports whether a field of the form is set that has no place of its own outside it.
func (f runFilter) detailed() bool {
	return f.Repo+f.Workflow+f.Branch+f.Actor+f.Event != ""
}

// filterField is one field of the form.
type filterField struct{ Name, Label, Value string }

func (f runFilter) field(name string) filterField {
	for _, x := range f.fields() {
		if x.name == name {
			label := x.label
			if name == "actor" {
				label = "started by"
			}
			return filterField{name, strings.ToUpper(label[:1]) + label[1:], *x.value}
		}
	}
	return filterField{}
}

// statusTabs are the links above the list.
var statusTabs = []string{"", "running", "waiting", "failed", "success", "cancelled"}

func statusName(s string) string {
	if s == "" {
		return "All"
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// statuses are the stored statuses that a tab stands for.
func (f runFilter) statuses() []string {
	switch f.Status {
	case "":
		return nil
	case "running":
		return []string{"running", "cancelling"}
	case "waiting":
		return []string{"pending", "held"}
	}
	return []string{f.Status}
}

// suggest is what is known of a field, from the sources and the runs on this page.
func (v runsView) suggest(field string) []string {
	var out []string
	if field == "repo" {
		out = slices.Clone(v.Repos)
	}
	of := map[string]func(client.Run) string{
		"repo": func(r client.Run) string { return r.Repo }, "workflow": func(r client.Run) string { return r.Workflow },
		"branch": func(r client.Run) string { return r.Branch }, "actor": func(r client.Run) string { return r.Actor },
		"event": func(r client.Run) string { return r.TriggerEvent },
	}[field]
	for _, r := range v.Runs {
		if s := of(r); s != "" && s == text(s) { // a name that deceives is no suggestion
			out = append(out, s)
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), 200)]
}

// runsHeadline answers what a person came to ask; when something failed last is said behind it.
func runsHeadline(now read.Overview) string {
	var parts []string
	if now.Running > 0 {
		parts = append(parts, fmt.Sprintf("%d running", now.Running))
	}
	if now.Waiting > 0 {
		parts = append(parts, fmt.Sprintf("%d waiting", now.Waiting))
	}
	if len(parts) == 0 {
		if now.LastFailure == nil {
			return "All quiet; nothing has failed"
		}
		return "All quiet"
	}
	return strings.Join(parts, ", ")
}
