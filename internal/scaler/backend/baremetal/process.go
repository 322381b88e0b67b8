package baremetal

import "time"

// What is the same of a process on every system.

// exit says how the process ended, "" when it is not known.
func (p *process) exit() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.detail
}

// wait waits for the exit, at most d.
func (p *process) wait(d time.Duration, stop <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
	case <-stop:
	}
	return p.gone()
}
