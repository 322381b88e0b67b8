package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/kici-go/kici/internal/git"
	"github.com/kici-go/kici/internal/scaler"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
)

// makeRoom is for a start on a disk that is almost full (XS-102, OP-12): the workspaces of dead agents, images that nobody uses and mirrors of
// repositories go before the database is opened, as far as they are on the disk of the data directory, and only as many as it takes. What cannot be removed
// is no reason not to start: the database says whether it has room.
func (s *Server) makeRoom(ctx context.Context) error {
	dir := s.data.Path()
	if s.o.asIs || !s.dataDiskFull() {
		return nil
	}
	s.log.Warn("there is little room for a start: what nobody needs is removed first", "component", "app", "data_dir", dir)
	ctx, cancel := context.WithTimeout(ctx, makeRoomWithin)
	defer cancel()
	for i := range s.scalers.Scalers {
		e := &s.scalers.Scalers[i]
		if err := s.makeRoomOf(ctx, e, backend.Collect{Full: s.dataDiskFull, Folder: dir}); err != nil {
			s.log.Warn("make room before the start", "component", "app", "scaler", e.Name, "err", err)
		}
	}
	mirrors := git.NewMirrors(git.MirrorOptions{Dir: s.data.File(mirrorsFolder), Now: s.o.Now, Log: s.log})
	if err := mirrors.MakeRoom(ctx, s.dataDiskFull); err != nil {
		s.log.Warn("make room before the start", "component", "app", "err", err)
	}
	return nil
}

// makeRoomWithin bounds what comes before a start.
const makeRoomWithin = time.Minute

func (s *Server) makeRoomOf(ctx context.Context, e *scaler.Entry, why backend.Collect) (err error) {
	for _, kind := range s.kinds() {
		if kind.Type != e.Type {
			continue
		}
		b, err := kind.New(e.Backend(), backend.Host{NodeID: s.data.InstanceID(), Dir: s.data.Path(), Environ: s.o.Environ, Log: s.log, Now: s.o.Now})
		if err != nil {
			return err
		}
		if c, ok := b.(backend.Closer); ok {
			defer func() { err = errors.Join(err, c.Close()) }()
		}
		c, ok := b.(backend.Collector)
		if !ok {
			return nil
		}
		things, err := c.Collect(ctx, why)
		for _, t := range things {
			s.log.Info("removed what nobody needs", "component", "app", "scaler", e.Name, "kind", t.Kind, "name", t.Name, "bytes", t.Bytes, "why", t.Why)
		}
		return err
	}
	return nil
}

// diskHint says what to do about a start that failed for want of room.
func (s *Server) diskHint(err error) error {
	if !isFull(err) || s.data == nil || s.o.DatabaseURL != "" && !service.DiskFull(err) { // the disk of a database elsewhere is not ours to speak of
		return err
	}
	free := "nothing"
	if n, ferr := service.FreeDisk(s.data.Path()); ferr == nil {
		free = humanize.IBytes(uint64(max(n, 0)))
	}
	return fmt.Errorf("%w\nThe disk of the data directory %s has %s free: make room there, and start again. What dead agents left has been removed already; "+
		"`kici scaler reap-orphans` also ends those that run", err, s.data.Path(), free)
}

func isFull(err error) bool { return errors.Is(err, store.ErrFull) || service.DiskFull(err) }

// fullPause is how long a server that could not start for want of room waits until it ends, so that who starts it again and again does so
// slowly, and goes on until there is room.
const fullPause = 10 * time.Second
