package dispatch

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/placement"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// view is what one pass has read.
type view struct {
	snapshot placement.Snapshot
	shapes   []db.DispatchShapesRow
}

// cache keeps what is decoded from rows that do not change between passes. A pass carries over what it used, so the cache
// is never larger than one snapshot.
type cache struct {
	labels  map[string][]string // by JSON text
	specs   map[string]placement.ScalerSpec
	holders map[string]string // "acme/shop #482" by job id
	shapes  map[string]placement.Shape
}

func newCache() *cache {
	return &cache{
		labels: map[string][]string{}, specs: map[string]placement.ScalerSpec{}, holders: map[string]string{},
		shapes: map[string]placement.Shape{},
	}
}

// reader reads one snapshot.
type reader struct {
	tx        *store.Tx
	settings  Settings
	now       int64
	old, next *cache
	live      map[string]bool                 // by instance id
	draining  map[string]bool                 // servers that take no new work, by instance id
	counted   map[string]db.DispatchShapesRow // of the last count, nil to count again
}

// read takes the snapshot of one pass: a few queries whose cost grows with shapes and agents, not with waiting jobs (D30).
func (p *placer) read(ctx context.Context) (view, error) {
	var v view
	next := newCache()
	err := p.d.Store.Snapshot(ctx, func(tx *store.Tx) error {
		r := &reader{tx: tx, settings: p.d.Settings, now: tx.Now(), old: p.cache, next: next, live: map[string]bool{}, draining: map[string]bool{}}
		if p.countFresh(r.now) {
			r.counted = p.counted
		}
		v = view{}
		v.snapshot.Now, v.snapshot.HintAfter, v.snapshot.WarmOrg = r.now, p.d.limits().LaunchFailures, ci.DefaultOrg
		for _, step := range []func(context.Context, *view) error{r.nodes, r.scalers, r.agents, r.waiting} {
			if err := step(ctx, &v); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return view{}, fmt.Errorf("read snapshot: %w", err)
	}
	p.cache = next
	p.remember(v)
	return v, nil
}

func (p *placer) countFresh(now int64) bool {
	return p.counted != nil && now >= p.countedAt && now-p.countedAt < p.d.Settings.Interval.Milliseconds()
}

// remember keeps a fresh count of the shapes.
func (p *placer) remember(v view) {
	if p.countFresh(v.snapshot.Now) {
		return
	}
	p.countedAt, p.counted = v.snapshot.Now, make(map[string]db.DispatchShapesRow, len(v.shapes))
	for _, row := range v.shapes {
		p.counted[row.Shape] = row
	}
}

func (r *reader) nodes(ctx context.Context, v *view) error {
	rows, err := r.tx.DispatchNodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range rows {
		live := ci.InstanceLive(n.HeartbeatAt, r.now)
		r.live[n.InstanceID] = live
		if n.Draining {
			r.draining[n.InstanceID] = true
		}
		v.snapshot.Nodes = append(v.snapshot.Nodes, placement.Node{
			ID: n.InstanceID, Name: n.Name, Live: live, Draining: n.Draining, GlobalMaxAgents: n.GlobalMaxAgents,
			GlobalCap: ci.Resources{CPUMilli: n.GlobalMaxCpuMilli, MemBytes: n.GlobalMaxMemBytes},
		})
	}
	return nil
}

// drains tells whether an agent gets nothing because its server drains (QUE-18). One that was started for a job may still have that,
// and no other.
func (r *reader) drains(g db.DispatchAgentsRow) bool {
	server := g.NodeID
	if server == "" {
		server = g.InstanceID
	}
	return (!g.BoundJobID.Valid || boundEnded(g)) && r.draining[server]
}

func (r *reader) scalers(ctx context.Context, v *view) error {
	rows, err := r.tx.DispatchScalers(ctx)
	if err != nil {
		return err
	}
	for _, s := range rows {
		spec, err := r.spec(s)
		if err != nil {
			return fmt.Errorf("scaler %s of %s: %w", s.Name, s.NodeID, err)
		}
		v.snapshot.Scalers = append(v.snapshot.Scalers, placement.Scaler{
			NodeID: s.NodeID, Name: s.Name, Type: s.Type, MaxAgents: s.MaxAgents,
			Cap: ci.Resources{CPUMilli: s.CapCpuMilli, MemBytes: s.CapMemBytes}, LabelSets: spec.LabelSets, Warm: spec.Warm, JobImages: spec.JobImages, Pool: spec.Pool,
			Retiring: s.Retiring, Ready: s.Ready, NotReady: s.NotReady,
			BackoffUntil: s.UntilAt.Int64, Failures: s.Failures.Int64, LastError: s.LastError.String,
		})
	}
	return nil
}

func (r *reader) spec(s db.DispatchScalersRow) (placement.ScalerSpec, error) {
	spec, ok := r.old.specs[s.Spec]
	if !ok {
		if err := json.Unmarshal([]byte(s.Spec), &spec); err != nil {
			return spec, fmt.Errorf("decode spec: %w", err)
		}
	}
	r.next.specs[s.Spec] = spec
	return spec, nil
}

func (r *reader) agents(ctx context.Context, v *view) error {
	rows, err := r.tx.DispatchAgents(ctx)
	if err != nil {
		return err
	}
	v.snapshot.Agents = make([]placement.Agent, 0, len(rows))
	for _, g := range rows {
		a := placement.Agent{
			ID: g.ID, OrgID: g.OrgID, NodeID: g.NodeID, Scaler: g.Scaler, Type: g.Type, State: ci.AgentState(g.State),
			Reserved: ci.Resources{CPUMilli: g.CpuMilli, MemBytes: g.MemBytes}, Limits: ci.Resources{CPUMilli: g.CpuLimitMilli, MemBytes: g.MemLimitBytes},
			Connected: g.SessionID != "" && !g.LinkLostAt.Valid && r.live[g.InstanceID],
			// An agent that has just refused a job would refuse the next one too; asking at once again would only burn attempts.
			Draining: g.Draining || g.RestUntil.Int64 > r.now || r.drains(g), BoundJob: g.BoundJobID.String, Job: g.JobID.String,
			LabelSet: g.LabelSet, IdleSince: g.RegisteredAt.Int64, Image: g.Image,
		}
		if a.Labels, err = r.labels(g.Labels); err == nil {
			a.Gate, err = r.labels(g.MandatoryLabels)
		}
		if err != nil {
			return fmt.Errorf("agent %s: %w", g.ID, err)
		}
		if a.Holder, err = r.holder(ctx, a.Job, a.BoundJob); err != nil {
			return err
		}
		if boundEnded(g) {
			v.snapshot.Ended = append(v.snapshot.Ended, a.BoundJob)
		}
		v.snapshot.Agents = append(v.snapshot.Agents, a)
	}
	return nil
}

// boundEnded reports whether the job that an agent was started for needs it no more: it has ended, it is gone, or another agent
// has it.
func boundEnded(g db.DispatchAgentsRow) bool {
	if !g.BoundJobID.Valid || g.JobID.Valid {
		return false
	}
	return !g.BoundExists.Valid || g.BoundFinishedAt.Valid || g.BoundAgentID.Valid && g.BoundAgentID.String != g.ID
}

func (r *reader) labels(text string) ([]string, error) {
	list, ok := r.old.labels[text]
	if !ok {
		if list, ok = r.next.labels[text]; !ok {
			var raw []string
			if err := json.Unmarshal([]byte(text), &raw); err != nil {
				return nil, fmt.Errorf("decode labels: %w", err)
			}
			list = ci.NormalizeLabels(raw)
		}
	}
	r.next.labels[text] = list
	return list, nil
}

// holder names the run of the first of these jobs that is not ”.
func (r *reader) holder(ctx context.Context, jobs ...string) (string, error) {
	for _, id := range jobs {
		if id == "" {
			continue
		}
		text, ok := r.old.holders[id]
		if !ok {
			row, err := r.tx.DispatchHolder(ctx, id)
			switch {
			case errors.Is(err, sql.ErrNoRows):
				text = "a run that is gone"
			case err != nil:
				return "", err
			default:
				text = fmt.Sprintf("%s #%d", row.Repo, row.Number)
			}
		}
		r.next.holders[id] = text
		return text, nil
	}
	return "", nil
}

func (r *reader) waiting(ctx context.Context, v *view) error {
	rows, err := r.shapeRows(ctx)
	if err != nil {
		return err
	}
	v.shapes = rows
	want := min(movable(v.snapshot), r.settings.Window)
	for _, row := range rows {
		sh, err := r.shape(ctx, row.Shape)
		if err != nil {
			return fmt.Errorf("shape %s: %w", row.Shape, err)
		}
		sh.Total = int(row.Total)
		jobs, err := r.tx.DispatchWindow(ctx, row.Shape, int32(want))
		if err != nil {
			return err
		}
		sh.Jobs = make([]placement.Job, len(jobs))
		for i, j := range jobs {
			sh.Jobs[i] = placement.Job{ID: j.ID, RunID: j.RunID, QueuedAt: j.QueuedAt.Int64}
		}
		v.snapshot.Shapes = append(v.snapshot.Shapes, sh)
	}
	return nil
}

// shapeRows lists the shapes that wait. Counting them costs as much as the queue is long, so that is done once an interval; the
// passes between, which something woke, only look which shapes there are and believe the last count.
func (r *reader) shapeRows(ctx context.Context) ([]db.DispatchShapesRow, error) {
	if r.counted == nil {
		return r.tx.DispatchShapes(ctx)
	}
	keys, err := r.tx.DispatchShapeKeys(ctx)
	if err != nil {
		return nil, err
	}
	rows := make([]db.DispatchShapesRow, len(keys))
	for i, key := range keys {
		rows[i] = r.counted[key]
		rows[i].Shape = key
	}
	return rows, nil
}

// movable bounds how many jobs could move in this pass: as many as there are idle agents, agents on their way, and room for
// new ones. Reading more would only cost time.
func movable(s placement.Snapshot) int {
	n := 1
	active := map[string]int64{} // by node, and by node and scaler
	for _, a := range s.Agents {
		active[a.NodeID]++
		active[a.NodeID+"\x00"+a.Scaler]++
		if a.Job == "" {
			n++
		}
	}
	room := map[string]int64{}
	for _, sc := range s.Scalers {
		room[sc.NodeID] += max(sc.MaxAgents-active[sc.NodeID+"\x00"+sc.Name], 0)
	}
	for _, node := range s.Nodes {
		n += int(min(max(node.GlobalMaxAgents-active[node.ID], 0), room[node.ID]))
	}
	return n
}

// shape is what all jobs of a shape ask for. It never changes, because the key is made from it.
func (r *reader) shape(ctx context.Context, key string) (placement.Shape, error) {
	sh, ok := r.old.shapes[key]
	if !ok {
		row, err := r.tx.DispatchShapeSample(ctx, key)
		if err != nil {
			return sh, err
		}
		sh = placement.Shape{Key: key, OrgID: row.OrgID, Image: row.Image, Claim: ci.Claim{
			Requests: ci.Resources{CPUMilli: row.CpuMilli, MemBytes: row.MemBytes},
			Limits:   ci.Resources{CPUMilli: row.CpuLimitMilli, MemBytes: row.MemLimitBytes},
		}}
		if sh.Labels, err = r.labels(row.Labels); err != nil {
			return sh, err
		}
		if sh.Exclude, err = r.labels(row.ExcludeLabels); err != nil {
			return sh, err
		}
	}
	r.next.shapes[key] = sh
	return sh, nil
}
