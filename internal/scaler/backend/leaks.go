package backend

import "sync"

// Resource is a kind of thing that an agent is made of, or needs, on its host.
type Resource string

// The kinds of resources that can be left behind.
const (
	Process   Resource = "process"
	Cgroup    Resource = "cgroup"
	Scope     Resource = "scope" // a unit of systemd
	Container Resource = "container"
	Network   Resource = "network"
	Volume    Resource = "volume"
	Rule      Resource = "rule" // of a firewall
	Token     Resource = "token"
	Workspace Resource = "workspace" // an agent's folders
)

// Resources lists the kinds.
func Resources() []Resource {
	return []Resource{Process, Cgroup, Scope, Container, Network, Volume, Rule, Token, Workspace}
}

// Leaks counts what was found that belongs to no live agent, and what of it is gone again, by kind. Nobody needs to know who finds it: a
// backend counts what it finds by itself (rules, volumes, folders of the dead), and says of each Instance what it holds, so that the node can
// count those that have no row. It is safe for concurrent use; nil counts nothing.
type Leaks struct {
	mu            sync.Mutex
	found, healed map[Resource]int64
}

// Found counts n of each kind as found.
func (l *Leaks) Found(n int, kinds ...Resource) { l.count(n, 0, kinds) }

// Healed counts n of each kind, which were found before, as gone.
func (l *Leaks) Healed(n int, kinds ...Resource) { l.count(0, n, kinds) }

// Removed counts n of each kind as found and gone at once.
func (l *Leaks) Removed(n int, kinds ...Resource) { l.count(n, n, kinds) }

func (l *Leaks) count(found, healed int, kinds []Resource) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.found == nil {
		l.found, l.healed = map[Resource]int64{}, map[Resource]int64{}
	}
	for _, k := range kinds {
		l.found[k] += int64(found)
		l.healed[k] += int64(healed)
	}
}

// Counts returns how many of a kind were found and how many of those are gone, ever since this process began.
func (l *Leaks) Counts(kind Resource) (found, healed int64) {
	if l == nil {
		return 0, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.found[kind], l.healed[kind]
}
