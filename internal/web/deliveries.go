package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
)

// deliveryFilter is which deliveries the list shows; it travels in the query.
type deliveryFilter struct{ Source, Status, Event, Cursor string }

func deliveryFilterOf(q url.Values) deliveryFilter {
	f := filterOf(q) // the same bounds
	src := q.Get("source")
	return deliveryFilter{strings.ToValidUTF8(src[:min(len(src), maxFilter)], ""), f.Status, f.Event, f.Cursor}
}

func (f deliveryFilter) query() string {
	q := url.Values{}
	for name, v := range map[string]string{"source": f.Source, "status": f.Status, "event": f.Event, "cursor": f.Cursor} {
		if v != "" {
			q.Set(name, v)
		}
	}
	return q.Encode()
}

func (f deliveryFilter) at(cursor string) deliveryFilter { f.Cursor = cursor; return f }

func (f deliveryFilter) of(status string) deliveryFilter {
	f.Status, f.Cursor = status, ""
	return f
}

func (f deliveryFilter) any() bool { return f.Source+f.Status+f.Event != "" }

// deliveryStatuses are those of the tabs above the list.
var deliveryStatuses = []string{"", "processed", "failed", "skipped", "lockfile_missing", "lockfile_corrupt", "processing"}

func deliveryTab(status string) string {
	if status == "" {
		return "All"
	}
	w := deliveryWord(status)
	return strings.ToUpper(w[:1]) + w[1:]
}

// deliveryWord is a stored status for people.
func deliveryWord(status string) string {
	switch status {
	case "lockfile_missing":
		return "no workflows"
	case "lockfile_corrupt":
		return "broken workflows"
	}
	return plainWord(status)
}

func deliveriesHeadline(v deliveriesView) string {
	bad := 0
	for _, d := range v.Deliveries {
		if deliveryClass(d) == "failed" {
			bad++
		}
	}
	switch n := len(v.Deliveries); {
	case n == 0 || v.Filter.any():
		return "Deliveries"
	case !v.Live:
		return "Older deliveries"
	case bad > 0:
		return fmt.Sprintf("%d of the last %s failed", bad, count(n, "delivery", "deliveries"))
	case n == 1:
		return "The only delivery went well"
	default:
		return fmt.Sprintf("The last %d deliveries went well", n)
	}
}

func deliveryClass(d client.Delivery) string {
	switch d.Status {
	case "processed":
		return "success"
	case "failed", "lockfile_corrupt":
		return "failed"
	case "received", "processing":
		return "running"
	}
	return "skipped"
}

func deliveryLine(d client.Delivery) string {
	switch {
	case d.Error != "":
		return firstLine(d.Error)
	case d.Matched > 0:
		return "started " + count(int(d.Matched), "workflow", "workflows")
	case d.Status == "processed":
		return "no workflow matched"
	case d.Status == "lockfile_missing":
		return "the commit has no workflows"
	}
	return ""
}

func deliveryHeadline(d client.Delivery) string {
	line := text(deliveryLine(d))
	if line == "" {
		return "Delivery"
	}
	return strings.ToUpper(line[:1]) + line[1:]
}

// workflowDecision is why one workflow did or did not start.
type workflowDecision struct {
	Repo     string  `json:"repo"`
	Workflow string  `json:"workflow"`
	Matched  bool    `json:"matched"`
	Trigger  string  `json:"trigger"`
	Degraded bool    `json:"degraded"`
	Reason   string  `json:"reason"` // why it was not started, where no check says so
	Checks   []check `json:"checks"`
}

type check struct {
	Trigger int    `json:"trigger"`
	Check   string `json:"check"`
	Pattern string `json:"pattern"`
	Value   string `json:"value"`
	Passed  bool   `json:"passed"`
	Reason  string `json:"reason"`
}

func decisionsOf(raw json.RawMessage) []workflowDecision {
	var out []workflowDecision
	_ = json.Unmarshal(raw, &out) // not in a form that this program knows: nothing is shown
	return out
}

func (w workflowDecision) verdict() string {
	if w.Matched {
		return "started"
	}
	return "did not start"
}

// sentence says why. A trigger for another event says less than one that failed at a filter.
func (w workflowDecision) sentence() string {
	if w.Reason != "" {
		return strings.ToUpper(w.Reason[:1]) + w.Reason[1:] + "."
	}
	if w.Matched {
		s := "It started"
		if w.Trigger != "" {
			s = "Its trigger " + triggerName(w.Trigger) + " matched"
		}
		if w.Degraded {
			s += "; the changed files are unknown, so its path filter was passed over"
		}
		return s + "."
	}
	var filters []string
	var events []string
	happened := ""
	for _, c := range w.Checks {
		switch {
		case c.Passed:
		case c.Check == "event" && c.Reason == "":
			events, happened = append(events, triggerName(c.Pattern)), c.Value
		default:
			filters = append(filters, c.sentence())
		}
	}
	switch {
	case len(filters) > 0:
		return strings.Join(filters, " ")
	case len(events) > 0:
		return "It starts on " + either(events) + ", and this was " + article(triggerName(happened)) + "."
	}
	return "It has no trigger for this event."
}

// sentence says what a filter wanted and got.
func (c check) sentence() string {
	got := c.Value
	if got == "" {
		got = "nothing"
	}
	switch c.Check {
	case "branches", "source-branches":
		return fmt.Sprintf("Its branches are %s, and this was %s.", c.Pattern, got)
	case "tags":
		return fmt.Sprintf("Its tags are %s, and this was %s.", c.Pattern, got)
	case "paths":
		return fmt.Sprintf("Its paths are %s: %s.", c.Pattern, cmp.Or(c.Reason, "no changed file matches"))
	case "types", "events", "status":
		return fmt.Sprintf("Its %s are %s, and this was %s.", c.Check, c.Pattern, got)
	case "match", "not":
		return fmt.Sprintf("It wants %s, and the payload has %s.", c.Pattern, got)
	case "deleted":
		return "The ref was deleted: there is nothing to run."
	}
	if c.Reason != "" {
		return strings.ToUpper(c.Reason[:1]) + c.Reason[1:] + "."
	}
	return fmt.Sprintf("It wants %s %s, and this was %s.", c.Check, c.Pattern, got)
}

// triggerName is a stored trigger as workflow files write it.
func triggerName(stored string) string {
	switch stored {
	case "pr":
		return "pull_request"
	case "comment":
		return "issue_comment"
	case "dispatch":
		return "workflow_dispatch"
	}
	return stored
}

func article(noun string) string {
	if noun != "" && strings.ContainsRune("aeio", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

// either joins names as a sentence does, each once.
func either(names []string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

func passClass(ok bool) string {
	if ok {
		return "success"
	}
	return "skipped"
}

func passWord(ok bool) string {
	if ok {
		return "passed"
	}
	return "not passed"
}

// silence says why a delivery without decisions started nothing.
func silence(d client.Delivery) string {
	switch d.Status {
	case "received", "processing":
		return "It is being looked at now."
	case "lockfile_missing":
		return "The commit has no workflows: neither a lock file nor anything in .kici/workflows. `kici init` writes a first one."
	case "processed":
		return "No registered workflow has a trigger for this event. A push to the default branch of a source registers its workflows."
	case "lockfile_corrupt":
		return "The commit's workflows cannot be read, so none of them was asked; what is wrong with them stands above."
	case "failed":
		return "It failed before any workflow was asked; the error above says at what."
	}
	return "No workflow was asked."
}

func (s *server) delivery(w http.ResponseWriter, r *http.Request, c caller) error {
	v, err := s.deliveryView(r, c)
	if err != nil {
		return err
	}
	s.render(w, r, deliveryPage(v))
	return nil
}

// deliveryView reads what was sent only when it is asked for: that is recorded, as by the API.
func (s *server) deliveryView(r *http.Request, c caller) (deliveryView, error) {
	ctx := r.Context()
	payload := r.URL.Query().Get("payload") != "" && c.Can(access.EventLogReadPayload)
	d, err := s.Reads.Delivery(ctx, c.scope, r.PathValue("delivery"), payload)
	if payload {
		s.audit(r, c, "event_log.payload.read", d.ID, err)
	}
	if err != nil {
		return deliveryView{}, err
	}
	runs, err := s.Reads.RunsOfDelivery(ctx, c.scope, d)
	return deliveryView{
		page: s.frame(c, "deliveries", "Delivery"), Delivery: d, Workflows: decisionsOf(d.Decisions), Runs: runs,
		CanReplay: c.offers("delivery.replay", access.RunTrigger) && d.Status == "failed", CanPayload: c.Can(access.EventLogReadPayload),
	}, err
}

func (s *server) replay(w http.ResponseWriter, r *http.Request, c caller) error {
	d, err := s.Reads.Delivery(r.Context(), c.scope, r.PathValue("delivery"), false)
	if err != nil {
		return err
	}
	err = s.Intake.Replay(r.Context(), c.OrgID, d.ID)
	s.audit(r, c, "event_log.replay", d.ID, err)
	if err != nil {
		return err
	}
	s.redirect(w, r, "/deliveries/"+d.ID)
	return nil
}

// headers are what came with a delivery, by name. Credentials were never stored.
func headers(raw json.RawMessage) (out [][2]string) {
	var all map[string]string
	_ = json.Unmarshal(raw, &all)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		out = append(out, [2]string{k, all[k]})
	}
	return out
}

// maxPretty bounds what of a body a page shows, in bytes; `kici delivery show --include-payload` has all.
const maxPretty = 256 << 10

// pretty is a body as text: JSON with indents, anything else as it is.
func pretty(body string) string {
	var b bytes.Buffer
	if len(body) <= maxPretty && json.Indent(&b, []byte(body), "", "  ") == nil {
		body = b.String()
	}
	if len(body) > maxPretty {
		body = strings.ToValidUTF8(body[:maxPretty], "") + "\n… the rest is left out here"
	}
	return text(strings.ToValidUTF8(body, "\ufffd"))
}

// eventOf names an event with its action, as the list of runs does.
func eventOf(d client.Delivery) string {
	if d.Action == "" {
		return text(d.Event)
	}
	return text(d.Event + ":" + d.Action)
}
