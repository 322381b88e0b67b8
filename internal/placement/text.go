package placement

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/ci"
)

// The sentences. They are the same in the CLI, the API and the dashboard, so they name things and numbers and carry no markup.

func count(n int, noun string) string { return strconv.Itoa(n) + " " + plural(n, noun, noun+"s") }

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func mismatchText(name string, kind ReasonKind, labels []string) string {
	list := labelList(labels)
	switch kind {
	case ReasonExcluded:
		return name + " carries excluded " + plural(len(labels), "label ", "labels ") + list
	case ReasonGate:
		return name + " takes only jobs that ask for " + list
	}
	return name + " lacks " + plural(len(labels), "label ", "labels ") + list
}

func labelList(labels []string) string {
	if len(labels) > maxLabelsNamed {
		return strings.Join(labels[:maxLabelsNamed], ", ") + " and " + strconv.Itoa(len(labels)-maxLabelsNamed) + " more"
	}
	return strings.Join(labels, ", ")
}

func summaryText(k ReasonKind, n int) string {
	switch k {
	case ReasonNoLabels:
		return plural(n, "lacks a label", "lack a label")
	case ReasonExcluded:
		return plural(n, "carries an excluded label", "carry an excluded label")
	case ReasonGate:
		return plural(n, "takes only jobs that ask for it", "take only jobs that ask for them")
	case ReasonNoImages:
		return plural(n, "runs no images of jobs", "run no images of jobs")
	case ReasonOnlyImages:
		return plural(n, "runs only jobs that name an image", "run only jobs that name an image")
	case ReasonCap:
		return plural(n, "is full", "are full")
	case ReasonTooLarge:
		return plural(n, "is too small", "are too small")
	case ReasonBackoff:
		return plural(n, "backs off", "back off")
	case ReasonNodeLost:
		return "on lost nodes"
	case ReasonDisconnected:
		return "without a link"
	}
	return plural(n, "is ", "are ") + strings.ReplaceAll(string(k), "_", " ")
}

func fullText(name string, l limit) string {
	where := ""
	if l.span == ofNode {
		where = " over all its scalers"
	}
	switch l.name {
	case "maxAgents", "globalMaxAgents":
		return name + " is full: " + strconv.FormatInt(l.used, 10) + " of " + strconv.FormatInt(l.max, 10) + " agents" + where
	}
	return name + " has no room for " + l.amount(l.asks) + ": " + l.amount(l.used) + " of " + l.amount(l.max) + " in use" + where
}

// othersText is "; 6 cpu of it by other servers of the machine".
func othersText(others ci.Resources, l limit) string {
	n := others.CPUMilli
	if strings.HasSuffix(l.name, "memory") {
		n = others.MemBytes
	}
	if n == 0 {
		return ""
	}
	return "; " + l.amount(n) + " by other servers of the machine"
}

func tooLargeText(name string, l limit) string {
	key, _, _ := strings.Cut(l.name, ".")
	switch l.name {
	case "maxAgents", "globalMaxAgents":
		return name + " may start no agent at all: its " + key + " is " + strconv.FormatInt(l.max, 10)
	}
	return name + " can never run it: it asks for " + l.amount(l.asks) + ", and its " + key + " is " + l.amount(l.max)
}

func bootingText(agent string, n, lost int) string {
	switch {
	case n == 1 && lost == 1:
		return "agent " + agent + " of this job lost its link"
	case n == 1:
		return "agent " + agent + " is on its way for a job of this kind"
	}
	text := count(n, "agent") + " are on their way for jobs of this kind"
	if lost > 0 {
		text += "; " + strconv.Itoa(lost) + " of them lost " + plural(lost, "its link", "their links")
	}
	return text
}

// amount writes n in the unit of the limit.
func (l limit) amount(n int64) string {
	if strings.HasSuffix(l.name, "memory") {
		return formatMemory(n)
	}
	return formatCPU(n)
}

func formatCPU(milli int64) string {
	return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64) + " cpu"
}

func formatMemory(b int64) string {
	const mib, gib = 1 << 20, 1 << 30
	unit, name := float64(mib), " MiB"
	if b >= gib {
		unit, name = gib, " GiB"
	}
	s := strconv.FormatFloat(float64(b)/unit, 'f', 1, 64)
	return strings.TrimSuffix(s, ".0") + name
}

// usualHint is Snapshot.HintAfter where nobody says another.
const usualHint = 5

func backoffText(name string, s *Scaler, hintAfter int64) string {
	until := time.UnixMilli(s.BackoffUntil).UTC().Format("15:04:05") + " UTC"
	if s.Failures == 0 {
		return name + " pauses until " + until + ": " + cmp.Or(s.LastError, "its host had no room")
	}
	text := name + " backs off until " + until + ": " + count(int(s.Failures), "launch")
	if s.Failures > 1 {
		text = name + " backs off until " + until + ": " + strconv.FormatInt(s.Failures, 10) + " launches"
	}
	text += " failed"
	if s.LastError != "" {
		text += ", last “" + s.LastError + "”"
	}
	if s.Failures >= cmp.Or(hintAfter, usualHint) {
		text += "; check how it provisions"
	}
	return text
}

// holders is who holds the agents under a cap.
type holders struct {
	counts               map[string]int
	others, idle, ending int
	launched             int64
}

func (h holders) sorted() []string {
	names := make([]string, 0, len(h.counts))
	for n := range h.counts {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(h.counts[b], h.counts[a]), cmp.Compare(a, b))
	})
	return names
}

func (h holders) names() []string {
	names := h.sorted()
	return names[:min(len(names), maxHolders)]
}

// text is ", held by acme/site #479 (6) and acme/shop #481 (2)", or "" when nobody is known.
func (h holders) text() string {
	var parts []string
	names := h.sorted()
	for _, n := range names[:min(len(names), maxHolders)] {
		parts = append(parts, n+" ("+strconv.Itoa(h.counts[n])+")")
	}
	if more := len(names) - maxHolders; more > 0 {
		parts = append(parts, count(more, "more run"))
	}
	if h.others > 0 {
		parts = append(parts, "other organisations ("+strconv.Itoa(h.others)+")")
	}
	if h.launched > 0 {
		parts = append(parts, "jobs just placed ("+strconv.FormatInt(h.launched, 10)+")")
	}
	if h.idle > 0 {
		parts = append(parts, "idle agents ("+strconv.Itoa(h.idle)+")")
	}
	if h.ending > 0 {
		parts = append(parts, "agents that are ending ("+strconv.Itoa(h.ending)+")")
	}
	if len(parts) == 0 {
		return ""
	}
	return ", held by " + enumerate(parts)
}

// enumerate joins with commas and a final "and".
func enumerate(parts []string) string {
	if len(parts) == 1 {
		return parts[0]
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}
