package scaler

import (
	"cmp"
	"fmt"

	"github.com/dustin/go-humanize"
)

// lookAtDisks finds the scalers on whose disk there is too little room for another agent. They start nothing until there is more; agents that
// run go on. What cannot be measured is no problem: the writes themselves will tell.
func (n *Node) lookAtDisks() {
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
				m.full = fullDisk(folder, free, cmp.Or(m.entry.MinFreeDisk, n.d.Settings.MinFreeDisk), was != "")
			}
		}
		if (m.full == "") != (was == "") {
			n.ready = false // publish again
			n.log.Warn("disk of a scaler", "scaler", id.Name, "folder_full", m.full != "", "what", m.full)
		} else {
			m.full = was // one sentence for one state: it is published once
		}
	}
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
