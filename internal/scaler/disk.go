package scaler

import (
	"cmp"
	"context"
	"fmt"

	"github.com/dustin/go-humanize"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// lookAtDisks finds the scalers on whose disk there is too little room for another agent. They start nothing until there is more; agents that
// run go on. What cannot be measured is no problem: the writes themselves will tell.
func (n *Node) lookAtDisks(ctx context.Context, rows []db.NodeAgentsRow) {
	n.metrics.diskFree.Reset()
	n.metrics.diskFloor.Reset()
	for _, id := range n.order {
		m := n.scalers[id]
		was := m.full
		m.full = ""
		if m.entry == nil {
			continue
		}
		if folder := m.backend.Capabilities().Volume; folder != "" {
			free, err := n.d.FreeDisk(folder)
			if err != nil {
				n.log.Debug("measure free space", "scaler", id.Name, "folder", folder, "err", err)
			} else {
				n.metrics.diskFree.WithLabelValues(id.Name).Set(float64(free))
				n.metrics.diskFloor.WithLabelValues(id.Name).Set(float64(n.minFreeDisk(m)))
				m.full = was // relieve asks whether it was full
				m.full = n.relieve(m, fullDisk(folder, free, n.minFreeDisk(m), was != ""))
			}
		}
		if (m.full == "") != (was == "") {
			n.ready = false // publish again
			n.log.Warn("disk of a scaler", "scaler", id.Name, "folder_full", m.full != "", "what", m.full)
			n.warnJobs(ctx, m, rows)
		} else {
			m.full = was // one sentence for one state: it is published once
		}
	}
}

// warnJobs notes at the jobs that run on a scaler's disk that it has become full: they go on, and may fail for it. Their agents look by
// themselves, too, and say it in the log.
func (n *Node) warnJobs(ctx context.Context, m *managed, rows []db.NodeAgentsRow) {
	var agents []string
	for _, r := range rows {
		if (ScalerID{r.Scaler, r.Type}) == m.id && ci.AgentState(r.State) == ci.AgentOnline && r.JobsDone == 0 {
			agents = append(agents, r.ID)
		}
	}
	if m.full == "" || len(agents) == 0 {
		return
	}
	err := n.d.Store.Write(ctx, func(tx *store.Tx) error {
		for _, id := range agents { // one without a job yet gets none
			if _, err := tx.NodeNoteJob(ctx, db.NodeNoteJobParams{
				ID: n.d.Env.NewID(), At: tx.Now(), Kind: ci.NoteDiskLow, Detail: bound(m.full + ": what the job writes may fail"), AgentID: id,
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		n.log.Warn("tell jobs of their disk", "scaler", m.id.Name, "err", err)
	}
}

// minFreeDisk is the floor of a configured scaler's disk.
func (n *Node) minFreeDisk(m *managed) int64 {
	return cmp.Or(m.entry.MinFreeDisk, n.d.Settings.MinFreeDisk)
}

// fullDisk says that a disk has too little room, ” when it has enough. One that was full must have a tenth more than least, so that a scaler
// does not open and close with every file.
func fullDisk(folder string, free, least int64, was bool) string {
	if was {
		least += least / 10
	}
	if free >= least {
		return ""
	}
	return fmt.Sprintf("the disk of %s has %s free, and minFreeDisk is %s", folder, humanize.IBytes(uint64(max(free, 0))), humanize.IBytes(uint64(least)))
}
