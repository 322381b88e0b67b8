package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// part is one thing that runs while the server does.
type part struct {
	name string
	run  func(context.Context) error
}

// running is a started part.
type running struct {
	part
	cancel context.CancelFunc
	done   chan error // closed after the result
}

// readiness is what /ready answers: the name of the part that is not there, "" when all are.
type readiness struct{ failing atomic.Pointer[string] }

func (r *readiness) set(failing string) { r.failing.Store(&failing) }

func (r *readiness) get() string {
	if p := r.failing.Load(); p != nil {
		return *p
	}
	return "start-up"
}

// Run serves until ctx ends or a part fails. Parts start in order and stop in reverse, within Tuning.StopIn together: first
// the server takes nothing more in, then agents are told, then what the rows say is brought to rest. Agents go on unless
// --on-stop end.
func (s *Server) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.fleet.Adopt(ctx); err != nil {
		return fmt.Errorf("take back agents: %w", err)
	}
	failed := make(chan error, 1)
	var started []running
	defer func() {
		s.state.set("stopping")
		err = errors.Join(err, s.stop(started))
	}()
	for _, p := range s.parts() {
		started = append(started, start(p, failed))
	}
	if err := s.instance.Ready(ctx); err != nil {
		return fmt.Errorf("register this server: %w", err)
	}
	s.state.set("")
	close(s.started)
	tellSystemd("READY=1")
	s.log.Info("server is ready", "component", "app", "url", s.URL(), "data_dir", s.data.Path(), "database", string(s.store.Dialect()), "instance_id", s.data.InstanceID(), "cluster", s.cluster.Name)
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// parts are in starting order: what others rely on first, what takes work in last.
func (s *Server) parts() []part {
	return []part{
		{"access", s.access.Run},
		{"settings", s.settings.Run},
		{"instance", s.instance.Run},
		{"leader", s.leader.Run},
		{"registrations", s.registrations.Run},
		{"ingress", s.ingress.Run},
		{"events", s.events.Run},
		{"event scanner", s.events.Scan},
		{"checks", s.checks.Run},
		{"node", s.node.Run},
		{"scaler configuration", s.watchScalers},
		{"dispatch", s.dispatch.Run},
		{"gaps", func(ctx context.Context) error { return s.leader.While(ctx, s.ingress.FillGaps) }},
		{"schedules", func(ctx context.Context) error { return s.leader.While(ctx, s.schedules.Run) }},
		{"periodic", s.periodic.Run},
		{"gauges", s.gauges},
		{"mirrors", s.sweepMirrors},
		{"fleet", s.fleet.Run},
		{"agents' socket", s.serveAgents},
		{"http", s.serve},
	}
}

// start runs a part until it is cancelled; a part that ends before that has failed.
func start(p part, failed chan<- error) running {
	ctx, cancel := context.WithCancel(context.Background())
	r := running{part: p, cancel: cancel, done: make(chan error, 1)}
	go func() {
		defer close(r.done)
		err := p.run(ctx)
		if ctx.Err() == nil {
			if err == nil {
				err = errors.New("ended by itself")
			}
			select {
			case failed <- fmt.Errorf("%s: %w", p.name, err):
			default:
			}
		} else if err != nil && !errors.Is(err, context.Canceled) {
			r.done <- err
		}
	}()
	return r
}

// stop ends the started parts, last first. Each gets what is left of the time; one that does not end is named and left.
func (s *Server) stop(parts []running) error {
	began := time.Now()
	tellSystemd("STOPPING=1")
	s.log.Info("server stops", "component", "app", "agents", s.o.OnStop)
	var errs []error
	if s.o.OnStop == OnStopEnd && len(parts) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), s.tuning.StopIn/2)
		if err := s.node.EndAll(ctx); err != nil {
			errs = append(errs, err)
		}
		cancel()
	}
	deadline := began.Add(s.tuning.StopIn)
	for i := len(parts) - 1; i >= 0; i-- {
		p := parts[i]
		p.cancel()
		timer := time.NewTimer(max(time.Until(deadline), time.Second))
		select {
		case err := <-p.done:
			if err != nil {
				errs = append(errs, fmt.Errorf("stop %s: %w", p.name, err))
			}
		case <-timer.C:
			errs = append(errs, fmt.Errorf("stop %s: it did not end in time", p.name))
		}
		timer.Stop()
	}
	s.log.Info("server has stopped", "component", "app", "ms", time.Since(began).Milliseconds())
	return errors.Join(errs...)
}

// httpGrace is how long requests in progress may take at the end; streams are cut at once.
const httpGrace = 3 * time.Second

// serve answers requests until ctx ends.
func (s *Server) serve(ctx context.Context) error {
	base, cut := context.WithCancel(context.Background())
	defer cut()
	s.streams.Store(&base)
	context.AfterFunc(ctx, cut)
	return serveUntil(ctx, s.http, s.listener)
}

// serveUntil answers requests until ctx ends, and lets those in progress end within httpGrace.
func serveUntil(ctx context.Context, server *http.Server, l net.Listener) error {
	result := make(chan error, 1)
	go func() { result <- server.Serve(l) }()
	select {
	case err := <-result:
		return fmt.Errorf("serve http: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.Background(), httpGrace)
	defer cancel()
	err := server.Shutdown(stop)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	if serr := <-result; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	return err
}
