package store

import (
	"slices"
	"sync"
)

// Topic names what a notification is about.
type Topic string

// Topics, with what their key is.
const (
	TopicDeliveries  Topic = "deliveries"  // a delivery is waiting
	TopicQueue       Topic = "queue"       // the dispatch loop has something to look at
	TopicAssignments Topic = "assignments" // fleet has something to deliver
	TopicAgents      Topic = "agents"      // node id: its ledger changed
	TopicRuns        Topic = "runs"        // run id
	TopicRunList     Topic = "run_list"    // organisation
	TopicLogs        Topic = "logs"        // job id
	TopicSources     Topic = "sources"     // organisation
	TopicRegistry    Topic = "registry"    // organisation
	TopicScalers     Topic = "scalers"     // node id
	TopicLeader      Topic = "leader"      // leadership was released or taken
	TopicAgentTokens Topic = "agent_tokens"
)

type note struct {
	topic Topic
	key   string
}

func addNote(notes []note, n note) []note {
	if slices.Contains(notes, n) {
		return notes
	}
	return append(notes, n)
}

// Subscription receives wake-ups. They coalesce: any number before the reader looks is one.
type Subscription struct {
	c   chan struct{}
	hub *hub
	on  note
}

// C delivers at most one pending wake-up.
func (s *Subscription) C() <-chan struct{} { return s.c }

// Close ends the subscription. It may be called twice.
func (s *Subscription) Close() { s.hub.remove(s) }

func (s *Subscription) signal() {
	select {
	case s.c <- struct{}{}:
	default:
	}
}

// hub delivers notes to the subscriptions of this process.
type hub struct {
	mu   sync.Mutex
	subs map[note]map[*Subscription]struct{}
}

func newHub() *hub { return &hub{subs: map[note]map[*Subscription]struct{}{}} }

func (h *hub) subscribe(on note) *Subscription {
	s := &Subscription{c: make(chan struct{}, 1), hub: h, on: on}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs[on] == nil {
		h.subs[on] = map[*Subscription]struct{}{}
	}
	h.subs[on][s] = struct{}{}
	return s
}

func (h *hub) remove(s *Subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs[s.on], s)
	if len(h.subs[s.on]) == 0 {
		delete(h.subs, s.on)
	}
}

func (h *hub) deliver(notes []note) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range notes {
		for s := range h.subs[n] {
			s.signal()
		}
		if n.key == "" {
			continue
		}
		for s := range h.subs[note{n.topic, ""}] {
			s.signal()
		}
	}
}

// deliverAll wakes everybody: notifications may have been missed.
func (h *hub) deliverAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, subs := range h.subs {
		for s := range subs {
			s.signal()
		}
	}
}
