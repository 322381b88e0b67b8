package scaler

import (
	"sync"

	"github.com/kici-go/kici/internal/scaler/backend"
)

// orphanage remembers what was found on the host without a row, so that each is counted once however often it is seen.
type orphanage struct {
	leaks *backend.Leaks

	mu   sync.Mutex
	held map[string][]backend.Resource // by agent
}

func newOrphanage(leaks *backend.Leaks) *orphanage {
	return &orphanage{leaks: leaks, held: map[string][]backend.Resource{}}
}

// found counts an orphan when it is first seen.
func (o *orphanage) found(agent string, holds []backend.Resource) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.held[agent]; !known {
		o.held[agent] = holds
		o.leaks.Found(1, holds...)
	}
}

// gone counts an orphan of which nothing is left.
func (o *orphanage) gone(agent string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leaks.Healed(1, o.held[agent]...)
	delete(o.held, agent)
}

// settle counts as gone what is neither seen any more nor being ended: it went by itself. A listing that failed proves nothing.
func (o *orphanage) settle(v View) {
	seen := map[string]bool{}
	for _, s := range v.Scalers {
		if !s.Listed {
			return
		}
		for _, t := range s.Things {
			seen[t.AgentID] = true
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for agent, holds := range o.held {
		if !seen[agent] && v.Busy[agent] == 0 {
			o.leaks.Healed(1, holds...)
			delete(o.held, agent)
		}
	}
}
