package placement

import (
	"slices"
	"strings"
)

// maxNearest bounds how many offered labels are compared with a missing one.
const maxNearest = 500

// nobody says that no scaler and no agent offers what the shape asks for, and what comes nearest.
func (e *explainer) nobody() Reason {
	if len(e.pass.scalers) == 0 && !e.anyStatic() {
		return Reason{Kind: ReasonNothing, Text: "There is no scaler and no agent"}
	}
	missing := e.offeredByNobody()
	r := Reason{Kind: ReasonNoOffer, Missing: missing}
	if len(missing) == 0 && e.sh.Image != "" && e.has(ReasonNoImages) {
		r.Kind, r.Text = ReasonNoImages, "No scaler that offers "+labelList(e.sh.Labels)+" runs images of jobs, and this job asks for "+e.sh.Image+"; a scaler of type container does"
		if len(e.sh.Labels) == 0 {
			r.Text = "No scaler runs images of jobs, and this job asks for " + e.sh.Image + "; a scaler of type container does"
		}
		return r
	}
	if len(missing) == 0 && e.sh.Image == "" && e.has(ReasonOnlyImages) {
		r.Kind, r.Text = ReasonOnlyImages, "What offers "+labelList(e.sh.Labels)+" runs only jobs that name an image of their own, and this one does not: give it a container"
		if len(e.sh.Labels) == 0 {
			r.Text = "Only jobs that name an image of their own are run here, and this one does not: give it a container"
		}
		return r
	}
	if len(missing) == 0 {
		r.Missing = e.sh.Labels
		if len(e.sh.Labels) < 2 || e.keptOut() { // then the gate or the exclusion tells more than this
			r.Kind, r.Text = ReasonNoLabels, "No scaler or agent takes jobs that ask for exactly this"
			return r
		}
		r.Text = "No scaler or agent offers " + enumerate(e.sh.Labels) + " together"
		return r
	}
	r.Text = "No scaler or agent offers " + labelList(missing)
	if near := e.nearest(missing[0]); near != "" {
		r.Text += "; nearest is " + near
	}
	return r
}

// keptOut reports whether something has the labels but a gate or an exclusion stands between.
func (e *explainer) keptOut() bool {
	return e.has(ReasonGate) || e.has(ReasonExcluded)
}

func (e *explainer) has(kind ReasonKind) bool {
	return slices.ContainsFunc(e.never, func(r Reason) bool { return r.Kind == kind })
}

func (e *explainer) anyStatic() bool {
	for i := range e.in.Agents {
		if a := &e.in.Agents[i]; a.NodeID == "" && a.OrgID == e.sh.OrgID && a.State.Live() {
			return true
		}
	}
	return false
}

// offeredByNobody lists the labels of the shape that nothing offers at all.
func (e *explainer) offeredByNobody() []string {
	all := make(bits, e.labels.words)
	for i := range e.pass.scalers {
		for j := range e.pass.scalers[i].sets {
			all.or(e.pass.scalers[i].sets[j].have)
		}
	}
	for i := range e.pass.agents {
		if a := &e.pass.agents[i]; a.NodeID == "" && a.OrgID == e.sh.OrgID {
			all.or(a.have)
		}
	}
	return e.labels.list(e.sh.want, all)
}

func (b bits) or(c bits) {
	for i := range c {
		b[i] |= c[i]
	}
}

// nearest finds the offered label most like want: "macos-14 on mac-mini", or "".
func (e *explainer) nearest(want string) string {
	key := e.sh.OrgID + "\x00" + want
	if s, ok := e.near[key]; ok {
		return s
	}
	best, found := max(1, len(want)/3)+1, ""
	seen := map[string]bool{}
	look := func(labels []string, owner string) {
		for _, l := range labels {
			if seen[l] || len(seen) >= maxNearest || strings.HasPrefix(l, "kici:") && !strings.HasPrefix(want, "kici:") {
				continue
			}
			seen[l] = true
			if d := distance(want, l, best); d < best {
				best, found = d, l+" on "+owner
			}
		}
	}
	for i := range e.pass.scalers {
		s := &e.pass.scalers[i]
		for j := range s.LabelSets {
			look(s.LabelSets[j].Enriched, e.scalerName(s))
		}
	}
	for i := range e.in.Agents {
		if a := &e.in.Agents[i]; a.NodeID == "" && a.OrgID == e.sh.OrgID {
			look(a.Labels, "agent "+a.ID)
		}
	}
	e.near[key] = found
	return found
}

// distance is the edit distance of a and b, or limit when it is at least that.
func distance(a, b string, limit int) int {
	if d := len(a) - len(b); d >= limit || -d >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal, least := row[0], i+1
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
			least = min(least, row[j+1])
		}
		if least >= limit {
			return limit
		}
	}
	return min(row[len(b)], limit)
}
