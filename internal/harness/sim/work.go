package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/kici-go/kici/internal/source"
)

const hookSecret = "a secret of sixteen bytes or more"

// person does what people and forges do: it asks until it has an answer.
type person struct {
	w    *world
	d    *dice
	http *http.Client
	n    int

	drained *coordinator // that takes no new work
	set     bool         // a setting is not its default
}

// answer is a decoded response.
type answer struct {
	status int
	body   map[string]any
}

func (a answer) text(key string) string { s, _ := a.body[key].(string); return s }

// ask sends one request.
func (p *person) ask(method, path string, body any, header map[string]string) (answer, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return answer{}, err
	}
	if raw, ok := body.([]byte); ok {
		data = raw
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://127.0.0.1:%d%s", anyPort, path), bytes.NewReader(data))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	req.Header.Set("Content-Type", "application/json")
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	out := answer{status: resp.StatusCode}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return answer{}, err
	}
	_ = json.Unmarshal(text, &out.body)
	return out, nil
}

var errNoAnswer = errors.New("nobody answered")

// insist asks until somebody answers with something other than 429 and 5xx.
func (p *person) insist(method, path string, body any, header map[string]string) (answer, error) {
	for range 60 {
		a, err := p.ask(method, path, body, header)
		if err == nil && a.status < 500 && a.status != http.StatusTooManyRequests {
			p.w.trace.add("asked %s %s %d", method, path, a.status)
			return a, nil
		}
		if p.w.ending.Load() {
			return answer{}, errNoAnswer
		}
		time.Sleep(p.d.between(200*time.Millisecond, 4*time.Second))
	}
	return answer{}, errNoAnswer
}

// work sets the scene and lets people do things until the work is over. It returns the server that still drains then, nil for none.
func (w *world) work() *coordinator {
	p := &person{w: w, d: w.seed.dice("people"), http: w.net.client("people", nil)}
	defer p.http.CloseIdleConnections()
	for name := range w.plan.repos {
		repo := fmt.Sprintf("repo%d", name+1)
		a, err := p.insist(http.MethodPost, "/api/v1/admin/sources", map[string]any{
			"kind": "local", "name": repo, "path": "/sim/" + repo, "repo": repo, "defaultBranch": "main", "secret": hookSecret,
		}, nil)
		if err != nil || a.status >= 300 && a.status != http.StatusConflict {
			w.violate("harness", "add source: %v %d %v", err, a.status, a.body)
			return nil
		}
	}
	if !p.hire() {
		return nil
	}
	if p.d.chance(50) { // events that meet a repository that is down are dead letters soon
		p.set = true
		p.patch("/api/v1/admin/cluster-settings", map[string]any{"eventRouterMaxDispatchAttempts": 1 + p.d.below(2)})
	}
	began := time.Now()
	w.started.set(began)
	w.trace.add("work begins")
	end := began.Add(w.plan.workFor)
	for time.Now().Before(end) {
		p.act()
		time.Sleep(p.d.between(50*time.Millisecond, 5*time.Second))
	}
	for w.started.since() < w.plan.faultsFor {
		time.Sleep(quick(time.Second))
	}
	switch k := p.d.below(100); {
	case k < 60:
		p.drain(nil)
	case k < 75:
		p.push("repo1")
		p.drain(pick(p.d, w.coordinators...))
	}
	p.unset()
	return p.drained
}

func (p *person) act() {
	p.n++
	repo := fmt.Sprintf("repo%d", 1+p.d.below(p.w.plan.repos))
	switch k := p.d.below(100); {
	case k < 38:
		p.push(repo)
	case k < 66:
		p.start(repo)
	case k < 81:
		p.cancel()
	case k < 89:
		p.rerun()
	case k < 90:
		p.crowd(repo)
	default: // while it is decided who gets what
		p.push(repo)
		time.Sleep(p.d.between(time.Millisecond, 1200*time.Millisecond))
		p.drain(pick(p.d, p.w.coordinators...))
	}
	if p.d.chance(12) {
		p.emit(repo)
	}
	switch k := p.d.below(100); {
	case k < 9:
		p.change()
	case k < 20:
		p.dead()
	case k < 22:
		p.clear()
	case k < 30:
		p.rewrite(pick(p.d, p.w.coordinators...))
	}
}

// drain makes a server take no new work, and the one that did not before take it again.
func (p *person) drain(c *coordinator) {
	ask := func(c *coordinator, action string) {
		_, _ = p.insist(http.MethodPost, "/api/v1/admin/orchestrator/drain", map[string]any{"action": action, "target": p.w.instanceID(c)}, nil)
	}
	if p.drained != nil {
		ask(p.drained, "resume")
	}
	if p.drained = c; c != nil {
		ask(c, "drain")
	}
}

// emit sends an event that some workflows wait for.
func (p *person) emit(repo string) {
	key := fmt.Sprintf("emit-%d", p.n)
	for range 1 + p.d.below(2) {
		a, err := p.insist(http.MethodPost, "/api/v1/admin/events/emit", map[string]any{"name": "deploy.wanted", "payload": map[string]any{"n": p.n}, "source": repo},
			map[string]string{"Idempotency-Key": key})
		if err != nil {
			return
		}
		id := a.text("eventId")
		if id == "" {
			p.w.violate("intake", "event %s got %d %v", key, a.status, a.body)
			return
		}
		p.w.mu.Lock()
		first, known := p.w.emitted[key]
		p.w.emitted[key] = id
		p.w.mu.Unlock()
		if known && first != id {
			p.w.violate("idempotency", "key %s made event %s and event %s", key, first, id)
		}
	}
}

func (p *person) push(repo string) {
	sha := pick(p.d, p.w.commits[repo]...)
	id := fmt.Sprintf("push-%d", p.n)
	p.deliver(repo, id, sha)
	if p.d.chance(20) { // the forge thinks that it got lost
		p.deliver(repo, id, sha)
	}
}

// crowd pushes several times at once.
func (p *person) crowd(repo string) {
	for range 3 {
		p.n++
		p.push(repo)
	}
}

func (p *person) deliver(repo, id, sha string) {
	body, _ := json.Marshal(source.Payload{Ref: "refs/heads/main", After: sha, Pusher: source.PayloadPusher{Name: "somebody"}})
	a, err := p.insist(http.MethodPost, "/webhook/default/generic/"+repo, body, map[string]string{
		"X-Event-Type": "push", "X-Delivery-Id": id, source.SignatureHeader: source.Sign(hookSecret, body),
	})
	if err != nil {
		return
	}
	if a.status != http.StatusAccepted && a.status != http.StatusOK {
		p.w.violate("intake", "delivery %s got %d %v", id, a.status, a.body)
		return
	}
	p.w.mu.Lock()
	p.w.accepted[id] = true
	p.w.mu.Unlock()
}

func (p *person) start(repo string) {
	key := fmt.Sprintf("start-%d", p.n)
	times := 1
	if p.d.chance(20) {
		times = 2
	}
	for range times {
		a, err := p.insist(http.MethodPost, "/api/v1/admin/runs", map[string]any{"source": repo, "workflow": "w0"}, map[string]string{"Idempotency-Key": key})
		if err != nil {
			return
		}
		if a.status != http.StatusCreated && a.status != http.StatusOK {
			p.w.trace.note("start %s: %d %v", key, a.status, a.body)
			return
		}
		p.made(key, a)
	}
}

// made remembers a run; the same key must not make two.
func (p *person) made(key string, a answer) {
	id := a.text("runId")
	if id == "" {
		p.w.violate("harness", "no run id in %v", a.body)
	}
	p.w.mu.Lock()
	first, known := p.w.runs[key]
	p.w.runs[key] = id
	p.w.mu.Unlock()
	if known && first != id {
		p.w.violate("idempotency", "key %s made run %s and run %s", key, first, id)
	}
}

// someRun is a run that exists, "" when there is none.
func (p *person) someRun() string {
	pool, err := p.w.openDatabase()
	if err != nil {
		return ""
	}
	defer func() { _ = pool.Close() }()
	found, err := rows(pool, "SELECT id FROM execution_runs ORDER BY id")
	if err != nil || len(found) == 0 {
		return ""
	}
	return found[len(found)-1-p.d.below(min(4, len(found)))][0]
}

func (p *person) cancel() {
	if id := p.someRun(); id != "" {
		_, _ = p.insist(http.MethodPost, "/api/v1/admin/runs/"+id+"/cancel", map[string]any{"force": p.d.chance(30), "reason": "because"}, nil)
	}
}

// rerunFailed runs again what failed of two runs, those with a job that needs another first.
func (p *person) rerunFailed() {
	pool, err := p.w.openDatabase()
	if err != nil {
		p.w.violate("harness", "open database: %v", err)
		return
	}
	found, err := column(pool, `SELECT r.id FROM execution_runs r WHERE r.status = 'failed' AND r.init_failure = ''
		ORDER BY (SELECT COUNT(*) FROM execution_job_needs n WHERE n.run_id = r.id) DESC, r.id`)
	_ = pool.Close()
	if err != nil {
		p.w.violate("harness", "read failed runs: %v", err)
	}
	for _, id := range found[:min(2, len(found))] {
		a, err := p.insist(http.MethodPost, "/api/v1/admin/runs/"+id+"/rerun", map[string]any{"failedOnly": true}, nil)
		if err != nil || a.status != http.StatusCreated && a.status != http.StatusConflict {
			p.w.violate("rerun", "of run %s: %v %d %v", id, err, a.status, a.body)
		}
	}
}

func (p *person) rerun() {
	id := p.someRun()
	if id == "" {
		return
	}
	key := fmt.Sprintf("rerun-%d", p.n)
	a, err := p.insist(http.MethodPost, "/api/v1/admin/runs/"+id+"/rerun", map[string]any{"requestId": key, "failedOnly": p.d.chance(50)},
		map[string]string{"Idempotency-Key": key})
	if err == nil && a.status == http.StatusCreated {
		p.made(key, a)
	}
}
