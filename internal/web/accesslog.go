package web

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read"
)

// accessFilter is which entries of the access log a page shows; it travels in the query. Since is one of sinces.
type accessFilter struct{ Action, Actor, Outcome, Target, Since, Cursor string }

func accessFilterOf(q url.Values) accessFilter {
	get := func(name string) string {
		v := strings.TrimSpace(q.Get(name))
		return strings.ToValidUTF8(v[:min(len(v), maxFilter)], "")
	}
	f := accessFilter{get("action"), get("actor"), get("outcome"), get("target"), get("since"), get("cursor")}
	if !slices.Contains(outcomes, f.Outcome) {
		f.Outcome = ""
	}
	if (eventFilter{Since: f.Since}).from(time.Now()) == 0 {
		f.Since = ""
	}
	return f
}

// outcomes are how a request ended.
var outcomes = []string{access.Allowed, access.DeniedEntry, access.Failed}

func (f accessFilter) query() string {
	return queryOf("action", f.Action, "actor", f.Actor, "outcome", f.Outcome, "target", f.Target, "since", f.Since, "cursor", f.Cursor)
}

func (f accessFilter) at(cursor string) accessFilter { f.Cursor = cursor; return f }

func (f accessFilter) of(outcome string) accessFilter {
	f.Outcome, f.Cursor = outcome, ""
	return f
}

func (f accessFilter) any() bool { return f.Action+f.Actor+f.Outcome+f.Target+f.Since != "" }

// accessLog shows who did what. That somebody looked is recorded, as by the API.
func (s *server) accessLog(w http.ResponseWriter, r *http.Request, c caller) error {
	f := accessFilterOf(r.URL.Query())
	list, err := s.Reads.AccessLog(r.Context(), c.scope, read.AccessFilter{
		Action: f.Action, Actor: f.Actor, Outcome: f.Outcome, Target: f.Target, Since: eventFilter{Since: f.Since}.from(time.Now()), Cursor: f.Cursor, Limit: 100,
	})
	s.audit(r, c, "access_log.read", "", err)
	if err != nil {
		return err
	}
	s.render(w, r, accessPage(accessView{page: s.frame(c, "access-log", "Access log"), Filter: f, Entries: list.Items, Next: list.NextCursor}))
	return nil
}

func outcomeTab(outcome string) string {
	switch outcome {
	case "":
		return "All"
	case access.Failed:
		return "Failed"
	}
	return upperFirst(outcome)
}

func accessClass(e client.AccessEntry) string {
	switch e.Outcome {
	case access.Allowed:
		return "success"
	case access.DeniedEntry:
		return "failed"
	}
	return "running"
}

// accessSource is where a request came from, in a word.
func accessSource(e client.AccessEntry) string {
	switch e.Source {
	case access.SourceHTTP:
		return "API"
	case access.SourceCLI:
		return "command line"
	}
	return plainWord(e.Source)
}

// accessFacts are what else an entry holds: name and value.
func accessFacts(e client.AccessEntry) (out [][2]string) {
	var meta map[string]json.RawMessage
	_ = json.Unmarshal(e.Meta, &meta)
	flat := map[string]string{}
	for k, v := range meta {
		flat[k] = plainJSON(v)
	}
	out = pairs(flat)
	if e.Actor != "" && e.Actor != e.Label {
		out = append(out, [2]string{"actor", e.Actor})
	}
	if e.RequestID != "" {
		out = append(out, [2]string{"request", e.RequestID})
	}
	return out
}

// plainJSON is a text without its quotes, and anything else as JSON without escapes that only HTML needs.
func plainJSON(raw json.RawMessage) string {
	var v any
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if json.Unmarshal(raw, &v) != nil || e.Encode(v) != nil {
		return string(raw)
	}
	if s, ok := v.(string); ok {
		return s
	}
	return strings.TrimSpace(b.String())
}
