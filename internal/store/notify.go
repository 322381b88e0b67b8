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
	TopicChecks      Topic = "checks"   // a run has commit statuses to post
	TopicEvents      Topic = "events"   // an internal event waits to be routed
	TopicSettings    Topic = "settings" // scope: cluster, or org:<slug>
	TopicGroups      Topic = "groups"   // a place in a concurrency group was given, or is to be given up
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
	n   int // in the order of subscription
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
	wake func(t Topic, key string, subscriber int, deliver func()) // Faults.Wake
	mu   sync.Mutex
	last int
	subs map[Topic]map[string]map[*Subscription]struct{} // by key; "" listens to all of them
}

func newHub(f Faults) *hub {
	return &hub{wake: f.Wake, subs: map[Topic]map[string]map[*Subscription]struct{}{}}
}

func (h *hub) subscribe(on note) *Subscription {
	s := &Subscription{c: make(chan struct{}, 1), hub: h, on: on}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	s.n = h.last
	byKey := h.subs[on.topic]
	if byKey == nil {
		byKey = map[string]map[*Subscription]struct{}{}
		h.subs[on.topic] = byKey
	}
	if byKey[on.key] == nil {
		byKey[on.key] = map[*Subscription]struct{}{}
	}
	byKey[on.key][s] = struct{}{}
	return s
}

func (h *hub) remove(s *Subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	byKey := h.subs[s.on.topic]
	delete(byKey[s.on.key], s)
	if len(byKey[s.on.key]) == 0 {
		delete(byKey, s.on.key)
	}
}

// deliver signals who listens to a note's key or to its whole topic. A note without a key is for all of them.
func (h *hub) deliver(notes []note) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range notes {
		if n.key == "" {
			h.signalTopic(n.topic)
			continue
		}
		h.signalAll(n, h.subs[n.topic][n.key])
		h.signalAll(n, h.subs[n.topic][""])
	}
}

// deliverAll wakes everybody: notifications may have been missed.
func (h *hub) deliverAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for topic := range h.subs {
		h.signalTopic(topic)
	}
}

func (h *hub) signalTopic(t Topic) {
	for _, subs := range h.subs[t] {
		h.signalAll(note{topic: t}, subs)
	}
}

func (h *hub) signalAll(n note, subs map[*Subscription]struct{}) {
	for s := range subs {
		if h.wake != nil {
			h.wake(n.topic, n.key, s.n, s.signal)
			continue
		}
		s.signal()
	}
}
