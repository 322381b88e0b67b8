package agent

import (
	"os"
	"os/signal"
)

func protect(*Config) error { return os.Unsetenv("KICI_AGENT_TOKEN") }

func (a *Agent) signals() (<-chan os.Signal, func()) {
	if a.cfg.Signals != nil || !a.cfg.Process {
		return a.cfg.Signals, func() {}
	}
	c := make(chan os.Signal, 4)
	signal.Notify(c, os.Interrupt)
	return c, func() { signal.Stop(c) }
}

func isDrain(os.Signal) bool { return false }
