package cli

import "sync"

// lockedList is a list that several requests append to.
type lockedList struct {
	mu    sync.Mutex
	items []string
}

func (l *lockedList) add(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = append(l.items, s)
}

func (l *lockedList) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.items...)
}
