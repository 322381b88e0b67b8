package store

import "context"

// Faults is what stands between a store and its database in the simulation (D25): it delays, fails and loses what a network, a disk
// or a death would. Nil functions do nothing; outside of the simulation all are nil.
type Faults struct {
	// Lead comes before every leader write, ahead of Enter.
	Lead func()
	// Enter comes before every transaction, snapshot and single read. It may wait; its error is the caller's.
	Enter func(ctx context.Context) error
	// Commit comes before every commit that changed something, with the terms of the leader writes in it. Its error undoes them all.
	Commit func(terms []int64) error
	// Committed follows the commit. It may wait. Its error is the caller's although the changes are there, as when a connection
	// breaks in the middle of a commit.
	Committed func(terms []int64) error
	// Wake delivers one wake-up to one subscriber, numbered in the order of subscription: at once, later, twice or never.
	Wake func(t Topic, key string, subscriber int, deliver func())
	// Publish tells the stores of other processes that share this SQLite file, which a file does not do by itself; they pass it on by
	// Receive. Such a file has as many servers as there are stores, and nobody leads it by having started (Shared).
	Publish func(t Topic, key string)
}

func (f Faults) enter(ctx context.Context) error {
	if f.Enter == nil {
		return nil
	}
	return f.Enter(ctx)
}

func (f Faults) lead() {
	if f.Lead != nil {
		f.Lead()
	}
}

func (f Faults) commit(terms []int64) error {
	if f.Commit == nil {
		return nil
	}
	return f.Commit(terms)
}

func (f Faults) committed(terms []int64) error {
	if f.Committed == nil {
		return nil
	}
	return f.Committed(terms)
}

// Shared reports whether several servers may use this database at once.
func (s *Store) Shared() bool { return s.dialect == PostgreSQL || s.faults.Publish != nil }

// Receive wakes subscribers for what another process has published.
func (s *Store) Receive(t Topic, key string) { s.hub.deliver([]note{{t, key}}) }
