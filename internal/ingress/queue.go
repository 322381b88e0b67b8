package ingress

import (
	"github.com/kici-go/kici/internal/store/db"
)

// slotsPerWorker is how many claimed deliveries may wait in memory for each worker: enough that none is idle while the next
// claim commits, few enough that claims do not grow old.
const slotsPerWorker = 4

// queue hands claimed deliveries to the workers of this process. Its slots are taken before a row is claimed, so that what is
// claimed always has a place; they bound the bodies in memory.
type queue struct {
	slots chan struct{} // one token for each delivery claimed by this process and not finished
	ready chan db.Delivery
	gate  chan struct{} // holds one token while the workers run and nothing older waits in the store
}

func newQueue(workers int) *queue {
	n := workers * slotsPerWorker
	return &queue{slots: make(chan struct{}, n), ready: make(chan db.Delivery, n), gate: make(chan struct{}, 1)}
}

// open lets new deliveries be born claimed; shut sends them through the store, in order behind what waits there.
func (q *queue) open() {
	select {
	case q.gate <- struct{}{}:
	default:
	}
}

func (q *queue) shut() {
	select {
	case <-q.gate:
	default:
	}
}

// reserve takes a slot for a delivery that is being accepted.
func (q *queue) reserve() bool {
	if len(q.gate) == 0 {
		return false
	}
	select {
	case q.slots <- struct{}{}:
		return true
	default:
		q.shut()
		return false
	}
}

// reserveMany takes up to n slots for deliveries that wait in the store.
func (q *queue) reserveMany(n int) int {
	for i := range n {
		select {
		case q.slots <- struct{}{}:
		default:
			return i
		}
	}
	return n
}

// cancel gives a slot back: its delivery is finished, or was never claimed.
func (q *queue) cancel() { <-q.slots }

// push hands over a delivery that has a slot. It never blocks.
func (q *queue) push(d db.Delivery) { q.ready <- d }
