package plan

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/ci"
)

// RunOn is the set of statuses with which a needed job lets the needing one go on, as it is stored: ",failed,success,".
type RunOn string

// RunOnSet makes a RunOn; the order of the statuses does not matter.
func RunOnSet(set []ci.JobStatus) RunOn {
	var b strings.Builder
	b.WriteByte(',')
	for _, s := range slices.Compact(slices.Sorted(slices.Values(set))) {
		b.WriteString(string(s))
		b.WriteByte(',')
	}
	return RunOn(b.String())
}

// Admits reports whether the set holds the status.
func (r RunOn) Admits(status ci.JobStatus) bool {
	return strings.Contains(string(r), ","+string(status)+",")
}

// Effective is the status that edges are compared with: an allowed failure counts as success (D6).
func Effective(status ci.JobStatus, allowed bool) ci.JobStatus {
	if allowed && status.Failure() {
		return ci.JobSuccess
	}
	return status
}

// Need is one edge of a job with what has become of its other end.
type Need struct {
	Name    string // the needed job's name in the workflow; the children of a fan-out share it
	RunOn   RunOn
	Status  ci.JobStatus
	Allowed bool   // its failure is allowed
	Outputs string // JSON object of texts, '' for none
}

// NeedsState is what the needs of a job have come to.
type NeedsState int

// The states of Judge.
const (
	NeedsOpen NeedsState = iota + 1
	NeedsMet
	NeedsRefused
)

// Judge is NEED-2: refused as soon as one upstream ended outside its edge's set, met when all ended inside.
func Judge(needs []Need) NeedsState {
	state := NeedsMet
	for _, n := range needs {
		switch {
		case !n.Status.Terminal():
			state = NeedsOpen
		case !n.RunOn.Admits(Effective(n.Status, n.Allowed)):
			return NeedsRefused
		}
	}
	return state
}

// AllSucceeded reports whether every job that is needed ended well, so that Word need not be asked.
func AllSucceeded(needs []Need) bool {
	for _, n := range needs {
		if n.Status.Result(n.Allowed) != "success" {
			return false
		}
	}
	return true
}

// NeedsContext is needs.<job>.{result, outputs}. A fanned-out job shows one aggregated result, and its children's outputs
// merged in their order, where an empty value does not replace another.
func NeedsContext(needs []Need) map[string]any {
	results := map[string][]string{}
	outputs := map[string]map[string]any{}
	for _, n := range needs {
		results[n.Name] = append(results[n.Name], n.Status.Result(n.Allowed))
		if outputs[n.Name] == nil {
			outputs[n.Name] = map[string]any{}
		}
		var own map[string]string
		_ = json.Unmarshal([]byte(n.Outputs), &own) // our own JSON
		for k, v := range own {
			if _, had := outputs[n.Name][k]; v != "" || !had {
				outputs[n.Name][k] = v
			}
		}
	}
	ctx := map[string]any{}
	for name, list := range results {
		ctx[name] = map[string]any{"result": worst(list), "outputs": outputs[name]}
	}
	return ctx
}

// worst is the result of a fanned-out job: any failure, else any cancelled, else skipped if all were, else success.
func worst(results []string) string {
	count := map[string]int{}
	for _, r := range results {
		count[r]++
	}
	switch {
	case count["failure"] > 0:
		return "failure"
	case count["cancelled"] > 0:
		return "cancelled"
	case len(results) > 0 && count["skipped"] == len(results):
		return "skipped"
	}
	return "success"
}

// Word answers success(), failure() and cancelled() for a job whose needs did not all succeed: failure or cancelled when any
// job before it was, else skipped. ups are the ids that each job needs, results what each job came to (ci.JobStatus.Result).
func Word(jobID string, ups map[string][]string, results map[string]string) string {
	word := "skipped"
	seen := map[string]bool{}
	for todo := slices.Clone(ups[jobID]); len(todo) > 0; {
		id := todo[0]
		todo = todo[1:]
		if seen[id] {
			continue
		}
		seen[id] = true
		switch results[id] {
		case "failure":
			return "failure"
		case "cancelled":
			word = "cancelled"
		}
		todo = append(todo, ups[id]...)
	}
	return word
}
