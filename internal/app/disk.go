package app

import (
	"sync/atomic"

	"github.com/kici-go/kici/internal/service"
)

// Limits of the free space where the data directory is (OBS-6, XC-151).
const (
	diskFail = 100 << 20 // below it /ready fails: the next writes may be refused
	diskWarn = 1 << 30
)

// diskState is what the free space means: "", "warn" or "fail".
type diskState struct{ last atomic.Pointer[string] }

// dataDiskFull reports whether there is too little room where the data directory is.
func (s *Server) dataDiskFull() bool {
	free, err := service.FreeDisk(s.data.Path())
	return err == nil && free < s.tuning.DiskFail
}

// look measures the free space, refreshes the metric, and says what it means. A change is logged once. What cannot be measured is no
// problem: the writes themselves will tell.
func (s *Server) lookAtDisk() string {
	free, err := service.FreeDisk(s.data.Path())
	if err != nil {
		s.log.Debug("measure free space", "component", "app", "err", err)
		return ""
	}
	s.metrics.DataFree.Set(float64(free))
	now := ""
	switch {
	case free < s.tuning.DiskFail:
		now = "fail"
	case free < s.tuning.DiskWarn:
		now = "warn"
	}
	before := s.disk.last.Swap(&now)
	if before == nil && now == "" || before != nil && *before == now {
		return now
	}
	attrs := []any{"component", "app", "data_dir", s.data.Path(), "free_mib", free >> 20}
	switch now {
	case "fail":
		s.mirrorsDue.Signal() // they can be fetched again
		s.log.Error("the disk of the data directory is almost full: /ready fails until there is room", attrs...)
	case "warn":
		s.log.Warn("the disk of the data directory fills up", attrs...)
	default:
		s.log.Info("the disk of the data directory has room again", attrs...)
	}
	return now
}
