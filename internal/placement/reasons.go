package placement

import (
	"cmp"
	"slices"

	"github.com/kici-go/kici/internal/ci"
)

// Bounds of what is said about one shape; the rest is summarised.
const (
	maxScalerReasons = 100
	maxAgentReasons  = 20
	maxHolders       = 3
	maxLabelsNamed   = 8
)

// explain says for every shape why its jobs wait: the whole cluster first when nobody offers the labels, then agents on
// their way, then what could run it but does not now, then what could never.
func (p *pass) explain() {
	p.out.Reasons = make([]ShapeReasons, 0, len(p.shapes))
	for i := range p.shapes {
		p.out.Reasons = append(p.out.Reasons, p.explainShape(&p.shapes[i]))
	}
}

func (p *pass) explainShape(sh *shapeState) ShapeReasons {
	out := ShapeReasons{
		Shape:   sh.Key,
		Waiting: max(sh.Total, len(sh.Jobs)) - sh.assigned - sh.launched - len(sh.booting),
	}
	e := explainer{pass: p, sh: sh, never: make([]Reason, 0, min(len(p.scalers), maxScalerReasons)+maxAgentReasons)}
	e.scalers()
	e.agents()
	out.Routable = e.routable
	if len(sh.booting) > 0 {
		out.Reasons = append(out.Reasons, e.booting())
	}
	if out.Waiting <= 0 {
		return out
	}
	if !e.matched {
		out.Reasons = append([]Reason{e.nobody()}, out.Reasons...)
	}
	out.Reasons = slices.Concat(out.Reasons, e.could, e.never)
	return out
}

// explainer collects the reasons of one shape.
type explainer struct {
	*pass
	sh       *shapeState
	routable bool
	matched  bool // something offers the labels, even if it can never serve
	could    []Reason
	never    []Reason
}

func (e *explainer) scalers() {
	rest := map[ReasonKind]int{}
	for i := range e.pass.scalers {
		s := &e.pass.scalers[i]
		r, could := e.scaler(s)
		if i >= maxScalerReasons {
			rest[r.Kind]++
			continue
		}
		r.NodeID, r.Scaler = s.NodeID, s.Name
		if could {
			e.could = append(e.could, r)
		} else {
			e.never = append(e.never, r)
		}
	}
	e.never = append(e.never, summaries(rest, "scaler")...)
}

// scaler explains one scaler; could says that it offers what the shape asks for.
func (e *explainer) scaler(s *scalerState) (Reason, bool) {
	best, matches, runs := e.limitOf(s)
	if !matches && s.Retiring && s.blocked != nil { // it has no labels any more
		return *s.blocked, false
	}
	if !matches {
		return e.mismatchedScaler(s), false
	}
	switch {
	case !runs && e.sh.Image == "":
		return Reason{Kind: ReasonOnlyImages, Text: e.scalerName(s) + " runs only jobs that name an image of their own (container:)"}, false
	case !runs:
		return Reason{Kind: ReasonNoImages, Text: e.scalerName(s) + " is of type " + s.Type + " and runs no images of jobs"}, false
	}
	e.matched = true
	hopeless := best != nil && best.tooLarge() || s.Retiring || s.node == nil || !s.node.Live
	e.routable = e.routable || !hopeless
	switch {
	case s.blocked != nil:
		return *s.blocked, true
	case best == nil: // its room went to nobody: the window of jobs was shorter than the room
		return Reason{Kind: ReasonBooting, Text: e.scalerName(s) + " has room; these jobs are next"}, true
	}
	return e.full(s, *best), true
}

// limitOf returns the cap that keeps the shape out of s, preferring one that time can lift; matches says that the labels of some set fit at
// all, and runs that one of those is for jobs of such an image, or of none.
func (e *explainer) limitOf(s *scalerState) (best *limit, matches, runs bool) {
	for j := range s.sets {
		if !e.sh.match(&s.sets[j]) {
			continue
		}
		matches = true
		if !s.runs(j, e.sh.Image) {
			continue
		}
		runs = true
		l, full := s.exceeded(e.sh.Claim.Or(s.LabelSets[j].Resources).Requests)
		if full && (best == nil || best.tooLarge() && !l.tooLarge()) {
			best = &l
		}
	}
	return best, matches, runs
}

// mismatchedScaler explains by the label set that comes nearest.
func (e *explainer) mismatchedScaler(s *scalerState) Reason {
	kind, labels := ReasonNoLabels, e.sh.Labels
	if len(s.sets) > 0 {
		near, least := 0, 0
		for j := range s.sets {
			k, n := e.sh.mismatch(&s.sets[j])
			if j == 0 || mismatchRank(k) < mismatchRank(kind) || k == kind && n < least {
				near, kind, least = j, k, n
			}
		}
		labels = e.sh.between(e.labels, kind, &s.sets[near])
	}
	return Reason{Kind: kind, Missing: labels, Text: mismatchText(e.scalerName(s), kind, labels)}
}

// mismatchRank orders mismatches from nearest to farthest.
func mismatchRank(k ReasonKind) int {
	switch k {
	case ReasonGate:
		return 0
	case ReasonExcluded:
		return 1
	}
	return 2
}

// full explains a cap, with who holds it.
func (e *explainer) full(s *scalerState, l limit) Reason {
	name := e.scalerName(s)
	switch l.span {
	case ofNode:
		name = s.Name + ": " + nodeName(s.node)
	case ofPool:
		name += ": the machine pool " + s.Pool.Name
	}
	r := Reason{Kind: ReasonCap, Limit: l.name}
	if l.tooLarge() {
		r.Kind = ReasonTooLarge
		r.Text = tooLargeText(name, l)
		return r
	}
	held := e.holders(s, l.span)
	r.Holders = held.named
	r.Text = fullText(name, l) + held.text
	if l.span == ofPool {
		r.Text += othersText(s.Pool.Others, l)
	}
	return r
}

type holdersKey struct {
	scaler *scalerState
	span   span
	org    string
}

// holders tells who holds the agents that a cap counts, as the organisation of the shape may see it. It depends on the shape by
// its organisation only, so it is counted once.
func (e *explainer) holders(s *scalerState, of span) heldBy {
	key := holdersKey{s, of, e.sh.OrgID}
	held, ok := e.held[key]
	if !ok {
		h := e.countHolders(s, of)
		held = heldBy{h.names(), h.text()}
		e.held[key] = held
	}
	return held
}

type heldBy struct {
	named []string
	text  string
}

func (e *explainer) countHolders(s *scalerState, of span) holders {
	h := holders{counts: map[string]int{}}
	for i := range e.pass.agents {
		a := &e.pass.agents[i]
		if a.NodeID != s.NodeID || !a.State.Live() || !s.shares(e.scalerOf[scalerKey{a.NodeID, a.Scaler}], of) {
			continue
		}
		switch {
		case a.State == ci.AgentEnding:
			h.ending++
		case a.Holder == "":
			h.idle++
		case a.OrgID != e.sh.OrgID:
			h.others++
		default:
			h.counts[a.Holder]++
		}
	}
	for i := range e.pass.scalers {
		if o := &e.pass.scalers[i]; o.node == s.node && s.shares(o, of) {
			h.launched += o.launched
		}
	}
	return h
}

// booting explains the jobs whose own agent cannot take them yet.
func (e *explainer) booting() Reason {
	var first *agentState
	lost := 0
	for _, j := range e.sh.booting {
		a := e.bound[e.sh.Jobs[j].ID]
		if first == nil {
			first = a
		}
		if a.State == ci.AgentOnline && !a.Connected {
			lost++
		}
	}
	r := Reason{Kind: ReasonBooting, NodeID: first.NodeID, Scaler: first.Scaler, Agent: first.ID}
	if lost > 0 {
		r.Kind = ReasonDisconnected
	}
	r.Text = bootingText(first.ID, len(e.sh.booting), lost)
	if len(e.sh.booting) > 1 {
		r.Agent = ""
	}
	return r
}

// blockedReason says why a scaler takes nothing now, whatever a job asks.
func (p *pass) blockedReason(s *scalerState) *Reason {
	r := &Reason{}
	name := p.scalerName(s)
	switch {
	case s.node == nil || !s.node.Live:
		r.Kind, r.Text = ReasonNodeLost, name+": nothing was heard from its node"+nodeSuffix(s.node)
	case s.Retiring:
		r.Kind, r.Text = ReasonRetiring, name+" is retiring: it is no longer in the configuration"
	case s.node.Draining:
		r.Kind, r.Text = ReasonDraining, name+" starts nothing: its node"+nodeSuffix(s.node)+" is draining"
	case !s.Ready:
		r.Kind, r.Text = ReasonNotReady, name+" is not ready: "+cmp.Or(s.NotReady, "no reason given")
	case s.BackoffUntil > p.in.Now:
		r.Kind, r.Until, r.Text = ReasonBackoff, s.BackoffUntil, backoffText(name, s.Scaler, p.in.HintAfter)
	case s.node.GlobalMaxAgents == 0:
		r.Kind, r.Text = ReasonNotReady, name+" is not ready: its node has not published its limits yet"
	default:
		return nil
	}
	return r
}

// scalerName is the name for sentences, with the node where several share it.
func (p *pass) scalerName(s *scalerState) string {
	if p.sameName[s.Name] > 1 && s.node != nil {
		return s.Name + " on " + nodeName(s.node)
	}
	return s.Name
}

func nodeName(n *nodeState) string { return cmp.Or(n.Name, n.ID) }

func nodeSuffix(n *nodeState) string {
	if n == nil {
		return ""
	}
	return " " + nodeName(n)
}

// summaries turns counts by kind into one reason each, in a fixed order.
func summaries(rest map[ReasonKind]int, what string) []Reason {
	var out []Reason
	for _, k := range []ReasonKind{
		ReasonBusy, ReasonCap, ReasonBackoff, ReasonNotReady, ReasonDraining, ReasonDisconnected, ReasonNodeLost,
		ReasonRetiring, ReasonTooLarge, ReasonBooting, ReasonGate, ReasonExcluded, ReasonNoImages, ReasonOnlyImages, ReasonNoLabels,
	} {
		if n := rest[k]; n > 0 {
			out = append(out, Reason{Kind: k, Text: count(n, "more "+what) + " " + summaryText(k, n)})
		}
	}
	return out
}
