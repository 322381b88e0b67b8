package baremetal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// manager is one systemd: the system's, or this user's. It is connected to when it is needed.
type manager struct {
	kind string // system or user; records name it
	dial func() (*sd.Conn, error)

	mu      sync.Mutex
	conn    *sd.Conn
	version int
}

const (
	systemManager = "system"
	userManager   = "user"
)

// managerPatience bounds one exchange with a manager.
const managerPatience = 10 * time.Second

// errNoManager says that nobody listens: what that manager ran is found in other ways.
var errNoManager = errors.New("systemd does not answer")

// newManagers makes both; none is connected.
func newManagers(environ []string) map[string]*manager {
	system := &manager{kind: systemManager, dial: func() (*sd.Conn, error) { return sd.NewSystemConnectionContext(context.Background()) }}
	if os.Geteuid() == 0 { // straight to it, also where no bus runs
		system.dial = func() (*sd.Conn, error) { return private("/run/systemd/private") }
	}
	user := &manager{kind: userManager, dial: func() (*sd.Conn, error) { return private(filepath.Join(runtimeDir(environ), "systemd/private")) }}
	return map[string]*manager{systemManager: system, userManager: user}
}

// private connects to a manager's own socket.
func private(path string) (*sd.Conn, error) {
	return sd.NewConnection(func() (*dbus.Conn, error) {
		conn, err := dbus.Dial("unix:path=" + path)
		if err != nil {
			return nil, err
		}
		if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, nil
	})
}

// runtimeDir is where this user's manager has its socket. A service of the system has no XDG_RUNTIME_DIR, and its user may have a
// manager all the same.
func runtimeDir(environ []string) string {
	if dir := lookup(environ, "XDG_RUNTIME_DIR"); dir != "" {
		return dir
	}
	return "/run/user/" + strconv.Itoa(os.Geteuid())
}

// managersHere are the managers to try, the system's first: who has the right for it needs no session of its own. There is none where
// systemd does not run the machine.
func (b *Backend) managersHere() []*manager {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return nil
	}
	out := []*manager{b.managers[systemManager]}
	if os.Geteuid() != 0 {
		out = append(out, b.managers[userManager])
	}
	return out
}

// do does something with a connection. One that has broken, as by a re-execution of systemd, is replaced.
func (m *manager) do(ctx context.Context, fn func(ctx context.Context, c *sd.Conn, version int) error) error {
	ctx, cancel := context.WithTimeout(ctx, managerPatience)
	defer cancel()
	c, version, err := m.connect()
	if err != nil {
		return fmt.Errorf("%w: %w", errNoManager, err)
	}
	return fn(ctx, c, version)
}

func (m *manager) connect() (*sd.Conn, int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn != nil && m.conn.Connected() {
		return m.conn, m.version, nil
	}
	if m.conn != nil {
		m.conn.Close()
		m.conn = nil
	}
	c, err := m.dial()
	if err != nil {
		return nil, 0, err
	}
	text, err := c.GetManagerProperty("Version")
	if err != nil {
		c.Close()
		return nil, 0, err
	}
	m.conn, m.version = c, versionOf(text)
	return m.conn, m.version, nil
}

func (m *manager) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn != nil {
		m.conn.Close()
		m.conn = nil
	}
}
