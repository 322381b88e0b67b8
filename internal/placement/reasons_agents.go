package placement

import "github.com/kici-go/kici/internal/ci"

// agents explains static agents one by one, those that could serve first, and single-use agents of other jobs as one.
func (e *explainer) agents() {
	var could, never []Reason
	restCould, restNever := map[ReasonKind]int{}, map[ReasonKind]int{}
	var single, foreign int
	own := e.ownJobs()
	for i := range e.pass.agents {
		a := &e.pass.agents[i]
		if !a.State.Live() {
			continue
		}
		switch {
		case a.OrgID != e.sh.OrgID:
			if a.NodeID == "" {
				foreign++
			}
			continue
		case a.NodeID != "":
			if !own[a.BoundJob] {
				single++
			}
			continue
		}
		list, rest := &never, restNever
		ok := e.sh.match(&a.offer) && a.Image == e.sh.Image
		if ok {
			e.matched, e.routable = true, true
			list, rest = &could, restCould
		}
		if len(*list) >= maxAgentReasons {
			rest[e.agentKind(a, ok)]++
			continue
		}
		*list = append(*list, e.agent(a, ok))
	}
	for _, r := range never[min(len(never), maxAgentReasons-len(could)):] {
		restNever[r.Kind]++
	}
	never = never[:min(len(never), maxAgentReasons-len(could))]
	e.could = append(append(e.could, could...), summaries(restCould, "agent")...)
	e.never = append(append(e.never, never...), summaries(restNever, "agent")...)
	if single > 0 {
		e.never = append(e.never, Reason{Kind: ReasonOtherJobs, Text: count(single, "single-use agent") + plural(single, " belongs", " belong") + " to other jobs"})
	}
	if foreign > 0 {
		e.never = append(e.never, Reason{Kind: ReasonOtherOrg, Text: count(foreign, "agent") + plural(foreign, " belongs", " belong") + " to other organisations"})
	}
}

// ownJobs are the jobs of the shape whose agents are on their way.
func (e *explainer) ownJobs() map[string]bool {
	if len(e.sh.booting) == 0 {
		return nil
	}
	own := make(map[string]bool, len(e.sh.booting))
	for _, j := range e.sh.booting {
		own[e.sh.Jobs[j].ID] = true
	}
	return own
}

func (e *explainer) agentKind(a *agentState, matches bool) ReasonKind {
	switch {
	case !matches && e.sh.match(&a.offer):
		return ReasonNoImages
	case !matches:
		kind, _ := e.sh.mismatch(&a.offer)
		return kind
	case !a.Connected:
		return ReasonDisconnected
	case a.Draining || a.State == ci.AgentDraining || a.State == ci.AgentEnding:
		return ReasonDraining
	}
	return ReasonBusy
}

func (e *explainer) agent(a *agentState, matches bool) Reason {
	r := Reason{Kind: e.agentKind(a, matches), Agent: a.ID}
	switch r.Kind {
	case ReasonDisconnected:
		r.Text = "agent " + a.ID + " lost its link"
	case ReasonNoImages:
		r.Text = "agent " + a.ID + " runs no images of jobs"
	case ReasonDraining:
		r.Text = "agent " + a.ID + " is draining"
	case ReasonBusy:
		r.Text = "agent " + a.ID + " is busy"
		switch {
		case a.taken:
			r.Text += " with an older job"
		case a.Holder != "":
			r.Text += " with " + a.Holder
			r.Holders = []string{a.Holder}
		}
	default:
		r.Missing = e.sh.between(e.labels, r.Kind, &a.offer)
		r.Text = mismatchText("agent "+a.ID, r.Kind, r.Missing)
	}
	return r
}
