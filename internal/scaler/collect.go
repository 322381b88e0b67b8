package scaler

import (
	"context"
	"errors"
	"time"

	"github.com/kici-go/kici/internal/scaler/backend"
)

// Times of collecting what nobody needs any more.
const (
	collectFirst   = time.Minute // after a scaler is ready
	collectEvery   = 10 * time.Minute
	relieveEvery   = time.Minute // while its disk is too full
	collectTimeout = 5 * time.Minute
	relieveTimeout = time.Minute // jobs wait for it
)

// collecting is what a scaler has collected, and when.
type collecting struct {
	next     int64 // the next regular look
	relieved int64 // when it last made room on a full disk; 0 while the disk is not full
}

// collect lets backends look for what nobody needs any more. It only begins the work.
func (n *Node) collect() {
	now := n.d.Env.NowMs()
	for _, id := range n.order {
		m := n.scalers[id]
		if _, ok := m.backend.(backend.Collector); !ok || m.entry == nil || !m.prepared || n.closed {
			continue
		}
		switch {
		case m.collecting.next == 0:
			m.collecting.next = now + collectFirst.Milliseconds()
		case m.collecting.next <= now && !n.busyCollecting(id):
			m.collecting.next = now + collectEvery.Milliseconds()
			n.beginCollect(m, collectTimeout, backend.Collect{})
		}
	}
}

// relieve makes room on a disk that is too full, when its backend can: everything that nobody needs goes, and only when that was not
// enough the scaler is full. It returns why it is, ” when it is not, or not yet. text is what the disk is like now, ” when it has room.
func (n *Node) relieve(m *managed, text string) string {
	_, can := m.backend.(backend.Collector)
	switch now, first := n.d.Env.NowMs(), m.collecting.relieved == 0; {
	case text == "":
		m.collecting.relieved = 0
		return ""
	case !can || !m.prepared || n.closed:
		return text
	case n.busyCollecting(m.id) && m.full == "" && m.collecting.waiting(now):
		return "" // the first attempt is under way
	case n.busyCollecting(m.id):
		return text
	case first, now >= m.collecting.relieved+relieveEvery.Milliseconds():
		m.collecting.relieved = now
		folder, least := m.backend.Capabilities().Volume, n.minFreeDisk(m)
		n.beginCollect(m, relieveTimeout, backend.Collect{Full: func() bool {
			free, err := n.d.FreeDisk(folder)
			return err == nil && fullDisk(folder, free, least, true) != ""
		}, Folder: folder})
		if first {
			return ""
		}
	}
	return text
}

// waiting reports whether a scaler may still hope for what is being collected.
func (c collecting) waiting(now int64) bool {
	return c.relieved == 0 || now < c.relieved+relieveTimeout.Milliseconds()
}

func collectKey(id ScalerID) string { return id.Type + "/" + id.Name }

func (n *Node) busyCollecting(id ScalerID) bool {
	_, busy := n.chores.snapshot()[collectKey(id)]
	return busy
}

// beginCollect collects in the background; the loop looks again when it is done.
func (n *Node) beginCollect(m *managed, timeout time.Duration, c backend.Collect) {
	n.chores.run(collectKey(m.id), OpDelete, timeout, func(ctx context.Context) {
		things, err := m.backend.(backend.Collector).Collect(ctx, c)
		for _, t := range things {
			n.metrics.collected.WithLabelValues(m.id.Name, t.Kind).Inc()
			n.metrics.collectedBytes.WithLabelValues(m.id.Name, t.Kind).Add(float64(max(t.Bytes, 0)))
			n.log.Info("removed what nobody needs", "scaler", m.id.Name, "kind", t.Kind, "name", t.Name, "bytes", t.Bytes, "why", t.Why)
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			n.log.Warn("remove what nobody needs", "scaler", m.id.Name, "err", err)
		}
	})
}
