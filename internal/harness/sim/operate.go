package sim

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"time"
)

// What operators do while things run: they change settings, look after dead letters and clear the queue.

// change sets something that people wait for. The longest wait is shorter than what a world may take to settle.
func (p *person) change() {
	if pace > 1 { // the values are not those of real time
		return
	}
	cluster, org := map[string]any{}, map[string]any{}
	switch p.d.below(5) {
	case 0:
		cluster["unroutableGraceMs"] = pick(p.d, 0, 16000, 60000)
	case 1:
		cluster["concurrencyWaitTimeoutMs"] = pick(p.d, 5000, 30000, 300000)
	case 2:
		cluster["eventRouterMaxDispatchAttempts"] = pick(p.d, 1, 1, 2)
	case 3:
		org["queueTimeoutMs"] = pick(p.d, 0, 20000, 120000)
	case 4:
		org["dispatchAckTimeoutMs"] = pick(p.d, 3000, 20000)
	}
	p.set = true
	if len(cluster) > 0 {
		p.patch("/api/v1/admin/cluster-settings", cluster)
	} else {
		p.patch("/api/v1/admin/org-settings", org)
	}
}

func (p *person) patch(path string, values map[string]any) {
	a, err := p.insist(http.MethodPatch, path, values, nil)
	if err == nil && a.status != http.StatusOK {
		p.w.violate("harness", "change %v: %d %v", values, a.status, a.body)
	}
}

// unset makes everything the default again.
func (p *person) unset() {
	if !p.set {
		return
	}
	p.patch("/api/v1/admin/cluster-settings", map[string]any{"unroutableGraceMs": nil, "concurrencyWaitTimeoutMs": nil, "eventRouterMaxDispatchAttempts": nil})
	p.patch("/api/v1/admin/org-settings", map[string]any{"queueTimeoutMs": nil, "dispatchAckTimeoutMs": nil})
}

// dead retries a dead letter, sometimes twice at once, or discards it.
func (p *person) dead() {
	ids := p.deadLetters()
	if len(ids) == 0 {
		return
	}
	id := pick(p.d, ids...)
	if p.d.chance(25) {
		p.w.mu.Lock()
		p.w.discarded[id] = true // it may be done although nobody says so
		p.w.mu.Unlock()
		_, _ = p.insist(http.MethodDelete, "/api/v1/admin/event-dlq/"+id, nil, nil)
		return
	}
	for range 1 + p.d.below(2) {
		_, _ = p.insist(http.MethodPost, "/api/v1/admin/event-dlq/"+id+"/retry", nil, nil)
	}
}

func (p *person) deadLetters() (ids []string) {
	a, err := p.insist(http.MethodGet, "/api/v1/admin/event-dlq", nil, nil)
	if err != nil || a.status != http.StatusOK {
		return nil
	}
	list, _ := a.body["events"].([]any)
	for _, e := range list {
		if m, ok := e.(map[string]any); ok {
			if id, ok := m["id"].(string); ok {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// reviveAll retries every dead letter, when nothing breaks any more: each gets its outcome.
func (p *person) reviveAll() {
	for _, id := range p.deadLetters() {
		p.w.watch.revived()
		_, _ = p.insist(http.MethodPost, "/api/v1/admin/event-dlq/"+id+"/retry", nil, nil)
		time.Sleep(p.d.between(time.Millisecond, 100*time.Millisecond))
	}
}

func (w *world) wasDiscarded(event string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.discarded[event]
}

// clear ends all that waits.
func (p *person) clear() {
	_, _ = p.insist(http.MethodPost, "/api/v1/admin/queue/clear", map[string]any{"confirm": true}, nil)
}

func (v *watch) revived() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.s.Dead++
}

// scalersFile is the scaler configuration in a server's folder.
const scalersFile = "scalers.yaml"

// rewrite changes what the scalers of a server offer: it takes the file up by itself, or when it is told to.
func (p *person) rewrite(c *coordinator) {
	c.offers(func(o offer) offer { return o.another(p.d) })
	if p.d.chance(40) {
		_, _ = p.insist(http.MethodPost, "/api/v1/admin/scaler/reload", map[string]any{}, nil)
	}
}

// offers writes another scalers.yaml, for the present life of the server and all that come.
func (c *coordinator) offers(change func(offer) offer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.offer = change(c.offer); c.life == nil {
		return
	}
	c.w.trace.add("scalers of %s: %+v", c.name, c.offer)
	if err := c.life.writeScalers(); err != nil {
		c.w.violate("harness", "write scalers: %v", err)
	}
}

// writeScalers writes the file at once; the coordinator's mu is held.
func (l *life) writeScalers() error {
	path := filepath.Join(l.dir, scalersFile)
	if err := os.WriteFile(path+".new", []byte(l.c.offer.text()), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// cool ends the warm pools. What retires goes on to.
func (w *world) cool() {
	for _, c := range w.coordinators {
		c.offers(func(o offer) offer { o.warm = 0; return o })
	}
}

// differing are the scalers whose rows are not what the file of their server says.
func (w *world) differing(pool *database) (out []string, err error) {
	for _, c := range w.coordinators {
		c.mu.Lock()
		o := c.offer
		c.mu.Unlock()
		found, err := rows(pool, "SELECT name, max_agents FROM scalers WHERE node_id = ? AND NOT retiring ORDER BY name", w.instanceID(c))
		if err != nil {
			return nil, err
		}
		want := [][]string{{"small", strconv.Itoa(o.linux)}}
		if o.gpu > 0 {
			want = [][]string{{"big", strconv.Itoa(o.gpu)}, want[0]}
		}
		if !reflect.DeepEqual(found, want) {
			out = append(out, fmt.Sprintf("scalers of %s: %v in the rows, %v in the file", c.name, found, want))
		}
	}
	return out, nil
}
