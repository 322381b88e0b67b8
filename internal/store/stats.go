package store

import "sync/atomic"

// Stats counts since Open.
type Stats struct {
	Writes       int64 // transaction functions that became durable
	Failed       int64 // those that did not
	Commits      int64 // commits; Writes/Commits is the mean group on SQLite
	LargestGroup int64
	Retries      int64 // transactions repeated on PostgreSQL
	Reconnects   int64 // of the LISTEN connection
	Listening    bool  // false on PostgreSQL while notifications cannot arrive
}

type stats struct {
	writes, failed, commits, largest, retries, reconnects atomic.Int64
	listening                                             atomic.Bool
}

func (s *stats) wrote(err error) {
	if err != nil {
		s.failed.Add(1)
		return
	}
	s.writes.Add(1)
}

func (s *stats) committed(group int64) {
	s.commits.Add(1)
	for {
		was := s.largest.Load()
		if group <= was || s.largest.CompareAndSwap(was, group) {
			return
		}
	}
}

func (s *stats) snapshot() Stats {
	return Stats{
		Writes: s.writes.Load(), Failed: s.failed.Load(), Commits: s.commits.Load(), LargestGroup: s.largest.Load(),
		Retries: s.retries.Load(), Reconnects: s.reconnects.Load(), Listening: s.listening.Load(),
	}
}
