package sim

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/placement"
)

// queueFacts is what the rows say, at one instant, of all that the reasons of waiting jobs speak of.
type queueFacts struct {
	now      int64
	nodes    map[string]nodeFacts
	scalers  map[string]scalerFacts // by node and name
	backoffs map[string]int64       // until when, likewise
	agents   []agentFacts           // that are not gone, by id
	shapes   map[string]shapeFacts  // of which jobs wait
	said     map[string][]placement.Reason
}

type nodeFacts struct {
	draining, live bool
	most           int // agents
}

type scalerFacts struct {
	most            int // agents
	retiring, ready bool
	sets            [][]string // labels that jobs are matched against
}

type agentFacts struct {
	id, node, scaler, state string
	linked, draining        bool
	bound, job, holder      string
	labels                  []string
}

type shapeFacts struct {
	labels  []string
	waiting []string // jobs without an agent, their own or one on its way
	booting []string // jobs with an agent on its way
}

func scalerKey(node, name string) string { return node + " " + name }

// live counts the agents under a cap and names them.
func (f queueFacts) live(node, scaler string, whole bool) (ids, holders []string) {
	for _, a := range f.agents {
		if a.node == node && node != "" && (whole || a.scaler == scaler) {
			ids = append(ids, a.id)
			holders = append(holders, a.holder)
		}
	}
	return ids, holders
}

func (f queueFacts) agent(id string) (agentFacts, bool) {
	i := slices.IndexFunc(f.agents, func(a agentFacts) bool { return a.id == id })
	if i < 0 {
		return agentFacts{}, false
	}
	return f.agents[i], true
}

func covers(have, want []string) bool {
	for _, l := range want {
		if !slices.Contains(have, l) {
			return false
		}
	}
	return true
}

var counts = regexp.MustCompile(`(\d+) of (\d+) agents`)

// falseReason says what is wrong with a reason why jobs of a shape wait, and on which facts that rests: as long as those are the same,
// a pass of placement would say something else.
func falseReason(f queueFacts, shape string, r placement.Reason) (wrong, rests string) {
	sh, node := f.shapes[shape], f.nodes[r.NodeID]
	s, known := f.scalers[scalerKey(r.NodeID, r.Scaler)]
	if r.Scaler != "" && !known {
		return "there is no such scaler", ""
	}
	switch r.Kind {
	case placement.ReasonCap:
		return falseCap(f, s, node, r)
	case placement.ReasonBackoff:
		until := f.backoffs[scalerKey(r.NodeID, r.Scaler)]
		rests = fmt.Sprint(until, until > f.now)
		if until != r.Until || until <= f.now {
			return fmt.Sprintf("it backs off until %d, now is %d", until, f.now), rests
		}
	case placement.ReasonDraining:
		return falseDraining(f, r)
	case placement.ReasonNodeLost, placement.ReasonRetiring, placement.ReasonNotReady:
		return falseState(s, node, r), ""
	case placement.ReasonBusy, placement.ReasonDisconnected:
		return falseAgent(f, r)
	case placement.ReasonOtherJobs:
		return falseOthers(f, sh, r)
	case placement.ReasonBooting:
		if r.Scaler != "" && strings.Contains(r.Text, "these jobs are next") {
			ids, _ := f.live(r.NodeID, "", true)
			return "its jobs are next, and nothing happens", fmt.Sprint(ids, sh.waiting, node.draining, f.backoffs)
		}
		return falseBooting(f, sh, r)
	case placement.ReasonNoLabels:
		return falseLabels(f, sh, s, r)
	case placement.ReasonNoOffer:
		return falseOffer(f, sh)
	case placement.ReasonNothing:
		if len(f.scalers)+len(f.agents) > 0 {
			return "there are scalers or agents", fmt.Sprint(len(f.scalers), len(f.agents))
		}
	default:
		return "a reason that this world does not know", ""
	}
	return "", ""
}

func falseState(s scalerFacts, node nodeFacts, r placement.Reason) string {
	switch {
	case r.Kind == placement.ReasonNodeLost && node.live:
		return "its node lives"
	case r.Kind == placement.ReasonRetiring && !s.retiring:
		return "it stays"
	case r.Kind == placement.ReasonNotReady && s.ready && node.most > 0:
		return "it is ready"
	}
	return ""
}

func falseCap(f queueFacts, s scalerFacts, node nodeFacts, r placement.Reason) (wrong, rests string) {
	if strings.HasPrefix(r.Limit, "machinePool.") {
		return falsePool(f, r)
	}
	whole := r.Limit == "globalMaxAgents"
	most := s.most
	if whole {
		most = node.most
	}
	ids, holders := f.live(r.NodeID, r.Scaler, whole)
	rests = fmt.Sprint(ids, holders, most)
	m := counts.FindStringSubmatch(r.Text)
	switch {
	case len(ids) < most:
		return fmt.Sprintf("it has %d of %d agents", len(ids), most), rests
	case m == nil || m[1] != strconv.Itoa(len(ids)) || m[2] != strconv.Itoa(most):
		return fmt.Sprintf("it has %d of %d agents", len(ids), most), rests
	}
	for _, h := range r.Holders {
		if !slices.Contains(holders, h) {
			return "it is not held by " + h, rests
		}
	}
	return "", rests
}

func falseDraining(f queueFacts, r placement.Reason) (wrong, rests string) {
	if r.Agent == "" {
		if !f.nodes[r.NodeID].draining {
			return "its node does not drain", ""
		}
		return "", ""
	}
	a, ok := f.agent(r.Agent)
	if !ok {
		return "there is no such agent", ""
	}
	if !a.draining && a.state != string(ci.AgentDraining) && a.state != string(ci.AgentEnding) {
		return "it does not drain", ""
	}
	return "", ""
}

// falseAgent: who is said to be busy has a job, and who is said to have lost its link has none.
func falseAgent(f queueFacts, r placement.Reason) (wrong, rests string) {
	a, ok := f.agent(r.Agent)
	rests = a.job + a.state + fmt.Sprint(a.linked)
	switch {
	case r.Agent == "":
		return "", ""
	case !ok:
		return "there is no such agent", ""
	case r.Kind == placement.ReasonDisconnected && a.linked:
		return "it has its link", rests
	case r.Kind == placement.ReasonBusy && a.job == "":
		return "it has no job", rests
	case r.Kind == placement.ReasonBusy && len(r.Holders) > 0 && r.Holders[0] != a.holder:
		return "it is busy with " + a.holder, rests
	}
	return "", ""
}

func falseOthers(f queueFacts, sh shapeFacts, r placement.Reason) (wrong, rests string) {
	n, ids := 0, []string(nil)
	for _, a := range f.agents {
		if a.node != "" && !slices.Contains(sh.booting, a.bound) {
			n++
			ids = append(ids, a.id)
		}
	}
	if !strings.HasPrefix(r.Text, strconv.Itoa(n)+" ") {
		return fmt.Sprintf("there are %d", n), fmt.Sprint(ids, sh.booting)
	}
	return "", ""
}

func falseBooting(f queueFacts, sh shapeFacts, r placement.Reason) (wrong, rests string) {
	rests = fmt.Sprint(sh.booting)
	if len(sh.booting) == 0 {
		return "no agent is on its way", rests
	}
	if a, ok := f.agent(r.Agent); r.Agent != "" && (!ok || !slices.Contains(sh.booting, a.bound)) {
		return "this agent is not on its way for it", rests
	}
	return "", ""
}

func falseLabels(f queueFacts, sh shapeFacts, s scalerFacts, r placement.Reason) (wrong, rests string) {
	sets := s.sets
	if r.Agent != "" {
		a, _ := f.agent(r.Agent)
		sets = [][]string{a.labels}
	}
	rests = fmt.Sprint(sets)
	if r.Agent == "" && r.Scaler == "" {
		return "", ""
	}
	if slices.ContainsFunc(sets, func(have []string) bool { return covers(have, sh.labels) }) {
		return fmt.Sprintf("it has all of %v", sh.labels), rests
	}
	if len(r.Missing) == 0 || !covers(sh.labels, r.Missing) || !slices.ContainsFunc(sets, func(have []string) bool {
		return !slices.ContainsFunc(r.Missing, func(l string) bool { return slices.Contains(have, l) })
	}) {
		return fmt.Sprintf("wanted are %v, it has %v", sh.labels, sets), rests
	}
	return "", ""
}

func falseOffer(f queueFacts, sh shapeFacts) (wrong, rests string) {
	for _, key := range slices.Sorted(maps.Keys(f.scalers)) {
		if slices.ContainsFunc(f.scalers[key].sets, func(have []string) bool { return covers(have, sh.labels) }) {
			return "scaler " + key + " offers it", ""
		}
	}
	for _, a := range f.agents {
		if a.node == "" && covers(a.labels, sh.labels) {
			return "agent " + a.id + " offers it", a.state
		}
	}
	return "", ""
}

// unsaid are the scalers of which the reasons of waiting jobs say nothing.
func unsaid(f queueFacts, shape string) (out []string) {
	for _, key := range slices.Sorted(maps.Keys(f.scalers)) {
		if !slices.ContainsFunc(f.said[shape], func(r placement.Reason) bool { return scalerKey(r.NodeID, r.Scaler) == key }) {
			out = append(out, key)
		}
	}
	return out
}

// doubt is a reason that looks false.
type doubt struct {
	since time.Time
	rests string
}

// How long a reason may be behind what it speaks of: where nothing breaks a pass of placement is made every two seconds; where things
// break there may be no leader for a while.
const (
	behindInPeace = 6 * time.Second
	behindInWar   = 80 * time.Second
	peaceAfter    = time.Minute
)

// waiting looks at the reasons of everything that waits.
func (s *sampler) waiting(pool *database) {
	w := s.p.w
	f, err := readQueue(pool, w.databaseNow().UnixMilli())
	if err != nil {
		w.trace.note("sample the queue: %v", err) // the server has just died
		return
	}
	patience := behindInWar
	if w.peace() && w.postgres == nil {
		patience = behindInPeace
	}
	doubts := map[string]doubt{}
	for _, shape := range slices.Sorted(maps.Keys(f.shapes)) {
		sh := f.shapes[shape]
		if len(sh.waiting) == 0 {
			continue
		}
		look := func(text, wrong, rests string) {
			w.watch.placed()
			key := shape + " " + text
			switch d, known := s.doubts[key]; {
			case wrong == "":
			case !known || d.rests != rests:
				doubts[key] = doubt{time.Now(), rests}
			case time.Since(d.since) > patience:
				w.violate("placement", "jobs %v wait for %v, it is said for %s that %q, and %s", sh.waiting, sh.labels, time.Since(d.since), text, wrong)
			default:
				doubts[key] = d
			}
		}
		for _, r := range f.said[shape] {
			wrong, rests := falseReason(f, shape, r)
			look(r.Text, wrong, rests)
		}
		if none := unsaid(f, shape); len(none) > 0 {
			look("nothing", fmt.Sprintf("nothing is said of %v", none), fmt.Sprint(none, sh.waiting))
		}
	}
	s.doubts = doubts
}

// peace reports that nothing breaks, and has not for a while.
func (w *world) peace() bool {
	return w.plan.calm || w.settling.Load() && w.started.since() > w.plan.faultsFor+quick(peaceAfter)
}

func (v *watch) placed() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.s.Placements++
}

// readQueue reads everything at one instant.
func readQueue(pool *database, now int64) (f queueFacts, err error) {
	f = queueFacts{
		now: now, nodes: map[string]nodeFacts{}, scalers: map[string]scalerFacts{}, backoffs: map[string]int64{}, shapes: map[string]shapeFacts{},
		said: map[string][]placement.Reason{},
	}
	at := &sql.TxOptions{ReadOnly: true}
	if pool.postgres {
		at.Isolation = sql.LevelRepeatableRead
	}
	tx, err := pool.BeginTx(context.Background(), at)
	if err != nil {
		return f, err
	}
	defer func() { _ = tx.Rollback() }()
	for _, read := range []struct {
		query string
		row   func(r []string) error
	}{
		{"SELECT instance_id, draining, heartbeat_at, global_max_agents FROM cluster_instances", f.node},
		{"SELECT node_id, name, max_agents, retiring, ready, spec FROM scalers", f.scaler},
		{"SELECT node_id, scaler, until_at FROM scaler_backoffs", f.backoff},
		{`SELECT g.id, g.node_id, g.scaler, g.state, g.session_id <> '' AND g.link_lost_at IS NULL, g.draining OR COALESCE(g.rest_until, 0) > ` + strconv.FormatInt(now, 10) +
			` OR EXISTS (SELECT 1 FROM cluster_instances i WHERE i.draining AND i.instance_id = CASE WHEN g.node_id <> '' THEN g.node_id ELSE g.instance_id END),
			g.bound_job_id, a.job_id, r.repo || ' #' || r.number, g.labels
			FROM agents g LEFT JOIN assignments a ON a.agent_id = g.id AND a.ended_at IS NULL
			LEFT JOIN execution_jobs j ON j.id = COALESCE(a.job_id, g.bound_job_id) LEFT JOIN execution_runs r ON r.id = j.run_id
			WHERE g.state <> 'gone' ORDER BY g.id`, func(r []string) error { return f.addAgent(r) }},
		{`SELECT j.shape, j.labels, j.id, EXISTS (SELECT 1 FROM agents g WHERE g.bound_job_id = j.id AND g.state NOT IN ('gone', 'ending'))
			FROM execution_jobs j WHERE j.status = 'queued' AND j.agent_id IS NULL ORDER BY j.id`, f.job},
		{"SELECT shape, reasons FROM shape_reasons", f.reasons},
	} {
		found, err := rows(tx, read.query)
		if err != nil {
			return f, err
		}
		for _, r := range found {
			if err := read.row(r); err != nil {
				return f, fmt.Errorf("read %v: %w", r, err)
			}
		}
	}
	return f, nil
}

func isTrue(text string) bool { return text == "1" || text == "true" }

func number(text string) int64 { n, _ := strconv.ParseInt(text, 10, 64); return n }

func (f queueFacts) node(r []string) error {
	f.nodes[r[0]] = nodeFacts{draining: isTrue(r[1]), live: ci.InstanceLive(number(r[2]), f.now), most: int(number(r[3]))}
	return nil
}

func (f queueFacts) scaler(r []string) error {
	var spec placement.ScalerSpec
	if err := json.Unmarshal([]byte(r[5]), &spec); err != nil {
		return err
	}
	s := scalerFacts{most: int(number(r[2])), retiring: isTrue(r[3]), ready: isTrue(r[4])}
	for _, set := range spec.LabelSets {
		s.sets = append(s.sets, set.Enriched)
	}
	f.scalers[scalerKey(r[0], r[1])] = s
	return nil
}

func (f queueFacts) backoff(r []string) error {
	f.backoffs[scalerKey(r[0], r[1])] = number(r[2])
	return nil
}

func (f *queueFacts) addAgent(r []string) error {
	a := agentFacts{id: r[0], node: r[1], scaler: r[2], state: r[3], linked: isTrue(r[4]), draining: isTrue(r[5]), bound: r[6], job: r[7], holder: r[8]}
	f.agents = append(f.agents, a)
	return json.Unmarshal([]byte(r[9]), &f.agents[len(f.agents)-1].labels)
}

func (f queueFacts) job(r []string) error {
	sh := f.shapes[r[0]]
	if err := json.Unmarshal([]byte(r[1]), &sh.labels); err != nil {
		return err
	}
	if isTrue(r[3]) {
		sh.booting = append(sh.booting, r[2])
	} else {
		sh.waiting = append(sh.waiting, r[2])
	}
	f.shapes[r[0]] = sh
	return nil
}

func (f queueFacts) reasons(r []string) error {
	var list []placement.Reason
	err := json.Unmarshal([]byte(r[1]), &list)
	f.said[r[0]] = list
	return err
}
