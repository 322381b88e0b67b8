package fleet

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/coder/websocket"
	"github.com/kici-go/kici/internal/wire"
)

// refusal ends a handshake: a close code, a sentence for the agent's log and a word for the metric.
type refusal struct {
	code   int
	reason string
	metric string // of obs.RefusalReasons
}

func (r *refusal) Error() string { return r.reason }

func refuse(code int, metric, reason string) error {
	return &refusal{code: code, reason: reason, metric: metric}
}

// socket takes a connection over and leaves the HTTP server's goroutine and buffers behind.
func (f *Fleet) socket(w http.ResponseWriter, r *http.Request) {
	if f.sockets.Add(1) > int64(f.Settings.MaxSockets) {
		f.sockets.Add(-1)
		http.Error(w, "too many connections", http.StatusServiceUnavailable)
		return
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		f.sockets.Add(-1)
		return // Accept has answered
	}
	conn.SetReadLimit(wire.MaxFrameBytes)
	s := newSession(f, conn, f.Env.NewID())
	if !f.admitSocket(s) {
		f.sockets.Add(-1)
		_ = conn.Close(wire.CloseGoingAway, "the server stops")
		return
	}
	f.wg.Go(func() {
		defer f.sockets.Add(-1)
		s.serve()
	})
}

// admitSocket makes s known, so that a stop finds it.
func (f *Fleet) admitSocket(s *session) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopping {
		return false
	}
	f.all[s] = struct{}{}
	return true
}

func (s *session) serve() {
	err := s.handshake()
	if err == nil {
		err = s.run()
	}
	s.settle()
	s.over(err)
}

// handshake authenticates and registers (AG-7).
func (s *session) handshake() error {
	deadline := s.deadline(s.f.Settings.AuthWithin, "no auth.request in time")
	auth, err := expect[wire.AuthRequest](s, wire.TypeAuthRequest)
	deadline.Stop()
	if err == nil {
		err = s.authenticate(auth)
	}
	if err != nil {
		return s.refused(err)
	}
	s.send(wire.TypeAuthSuccess, wire.AuthSuccess{ConnectionID: s.id})
	deadline = s.deadline(s.f.Settings.RegisterWithin, "no agent.register in time")
	reg, err := expect[wire.Register](s, wire.TypeRegister)
	deadline.Stop()
	if err == nil {
		err = s.register(reg)
	}
	return s.refused(err)
}

func (s *session) deadline(d time.Duration, reason string) *time.Timer {
	return time.AfterFunc(d, func() { s.close(ending{wire.CloseHandshake, reason, "invalid"}) })
}

// expect reads one frame of the given type.
func expect[T any](s *session, kind string) (T, error) {
	var body T
	frame, _, err := s.read()
	switch {
	case errors.Is(err, errInvalid):
		return body, refuse(wire.CloseInvalid, "handshake", err.Error())
	case err != nil:
		return body, err
	case frame.Type != kind:
		return body, refuse(wire.CloseInvalid, "handshake", "expected "+kind)
	}
	if err := json.Unmarshal(frame.Body, &body); err != nil {
		return body, refuse(wire.CloseInvalid, "handshake", "invalid "+kind)
	}
	return body, nil
}

// authenticate looks the token up; register looks again, in its transaction.
func (s *session) authenticate(auth wire.AuthRequest) error {
	if auth.ProtocolVersion < wire.MinProtocolVersion {
		return refuse(wire.CloseProtocol, "protocol", "this agent is too old for this server: install the server's version")
	}
	s.tokenHash = hashToken(auth.Token)
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	token, err := s.f.Store.Read().FleetToken(ctx, s.tokenHash)
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && token.RevokedAt.Valid:
		return errToken
	case err != nil:
		s.f.Log.Error("look up agent token", "err", err)
		return errLookup
	}
	return nil
}

var (
	errToken  = refuse(wire.CloseAuthFailed, "token", "unknown or revoked token")
	errLookup = refuse(wire.CloseScalerState, "unavailable", "the server cannot check this agent just now") // XS-44: it comes back
)

func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// refused tells the agent and passes the error on.
func (s *session) refused(err error) error {
	r, ok := errors.AsType[*refusal](err)
	if !ok {
		return err
	}
	s.f.Metrics.AgentRefusals.WithLabelValues(r.metric).Inc()
	s.f.Log.Warn("agent refused", "agent_id", s.agentID, "code", r.code, "reason", r.reason)
	if r.code == wire.CloseAuthFailed {
		s.send(wire.TypeAuthFailure, wire.AuthFailure{Reason: r.reason})
	}
	s.close(ending{r.code, r.reason, "invalid"})
	return err
}
