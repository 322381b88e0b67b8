package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// The agents' socket: agents that are cut off from every network of this machine, such as those in containers, reach the server by a
// socket in a folder of its own, which is mounted into them. It serves what agents need and nothing else: no API, no dashboard.
const (
	agentSocketFolder = "agent"
	agentSocketName   = "kici.sock"
)

// listenAgents opens the socket anew, because what a dead server left cannot be listened on. The data directory is locked, so it is nobody
// else's. Whoever can open the file still needs an agent's token. A server whose listener comes from outside has no socket: it is not on
// this machine's file system.
func (s *Server) listenAgents(ctx context.Context) error {
	if s.o.Outside.Listen != nil {
		return nil
	}
	folder := s.data.File(agentSocketFolder)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("make the folder of the agents' socket: %w", err)
	}
	l, err := listenSocket(ctx, folder, agentSocketName)
	if err != nil {
		s.log.Warn("no socket for agents in containers: they need orchestratorUrl", "component", "app", "err", err)
		return nil
	}
	s.agentListener, s.agentSocket = l, filepath.Join(folder, agentSocketName)
	s.opened("agents' socket", func() error {
		err := l.Close()
		if errors.Is(err, net.ErrClosed) {
			err = nil
		}
		return errors.Join(err, removeSocket(s.agentSocket))
	})
	return nil
}

// listenSocket listens on folder/name, open to every user of whatever the folder is mounted into.
func listenSocket(ctx context.Context, folder, name string) (net.Listener, error) {
	path := filepath.Join(folder, name)
	if err := removeSocket(path); err != nil {
		return nil, err
	}
	short, release, err := shortPath(folder)
	if err != nil {
		return nil, err
	}
	defer release()
	l, err := new(net.ListenConfig).Listen(ctx, "unix", filepath.Join(short, name))
	if err != nil {
		return nil, err
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // it would go by the short path
	}
	if err := os.Chmod(path, 0o666); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func removeSocket(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// serveAgents answers agents on their socket until ctx ends.
func (s *Server) serveAgents(ctx context.Context) error {
	if s.agentListener == nil {
		<-ctx.Done()
		return nil
	}
	return serveUntil(ctx, s.newServer(s.fleet.Handler()), s.agentListener)
}
