// Package link is the agent's side of its connection to the orchestrator: one WebSocket that is dialled again whenever it
// is lost, and the HTTP requests beside it for what is large (spec AG-7…16). It knows frames, not jobs.
package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/wire"
)

// Times of the link.
const (
	handshakeTimeout  = 15 * time.Second
	writeTimeout      = 10 * time.Second
	heartbeatInterval = 30 * time.Second
	silenceLimit      = 90 * time.Second // the orchestrator's heartbeats come every 30 s
	firstBackoff      = time.Second      // AG-13
	maxBackoff        = 60 * time.Second
	closeTimeout      = time.Second // AG-23: how long a close frame gets to leave
)

// The reasons for which Run gives up.
var (
	ErrRefused    = errors.New("the orchestrator refuses this agent")
	ErrGone       = errors.New("the orchestrator has ended this agent")
	ErrSuperseded = errors.New("another process has registered with this agent's id")
	ErrProtocol   = errors.New("the orchestrator does not speak this agent's protocol version")
	ErrLost       = errors.New("the orchestrator did not come back in time")
)

// Handler is whom the link serves. Its methods are called by one goroutine and must not block.
type Handler interface {
	// Registration is sent on every new connection.
	Registration() wire.Register
	// Registered follows when the orchestrator accepted it. Nothing can be sent on the new connection yet.
	Registered(wire.RegisterAck)
	// Ready follows when it can.
	Ready()
	// Frame takes every other frame. An error closes the connection, which is then dialled again.
	Frame(wire.Frame) error
	// Lost follows the end of a connection that had been registered.
	Lost(error)
	// Patient reports whether the link is still worth waiting for, since was when it was lost.
	Patient(since time.Time) bool
}

// Config is what a link needs.
type Config struct {
	URL     string // with or without /ws; http, https, ws or wss; or unix:///path of a socket, which HTTP must dial: see Socket
	Token   string
	AgentID string
	Version string
	HTTP    *http.Client // its transport carries everything; its Timeout must be 0
	Now     func() time.Time
	Rand    func(n int64) int64 // see service.Env
	Log     *slog.Logger
}

// Link is the connection. Send and the HTTP methods may be used by any goroutine.
type Link struct {
	cfg    Config
	base   string // http(s) address below which all paths are
	socket string // ws(s) address

	mu         sync.Mutex
	conn       *websocket.Conn // nil while there is none, or it is not registered
	quietUntil time.Time       // the orchestrator asked for a pause
}

// New checks the address.
func New(c Config) (*Link, error) {
	base, err := BaseURL(c.URL)
	if err != nil {
		return nil, err
	}
	socket := "ws" + strings.TrimPrefix(base, "http") + wire.PathSocket
	return &Link{cfg: c, base: base, socket: socket}, nil
}

// Run keeps the link up until ctx ends (then it returns nil) or there is no point in trying again.
func (l *Link) Run(ctx context.Context, h Handler) error {
	lostAt := l.cfg.Now()
	backoff := firstBackoff
	for {
		registered, err := l.session(ctx, h)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was to end
		}
		if final := finalError(err); final != nil {
			return final
		}
		if registered {
			lostAt, backoff = l.cfg.Now(), firstBackoff
		}
		if !h.Patient(lostAt) {
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
		pause := backoff/2 + service.Jitter(l.cfg.Rand, backoff) // AG-13: jitter, so that a thousand agents do not come back as one
		l.cfg.Log.Info("no link to the orchestrator", "err", err, "again_in", pause)
		backoff = min(backoff*3/2, maxBackoff)
		if err := l.pause(ctx, h, pause, lostAt); err != nil {
			return err
		}
	}
}

// pause waits between two attempts, but not beyond the handler's patience.
func (l *Link) pause(ctx context.Context, h Handler, d time.Duration, lostAt time.Time) error {
	end := time.NewTimer(d)
	defer end.Stop()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-end.C:
			return nil
		case <-look.C:
			if !h.Patient(lostAt) {
				return ErrLost
			}
		}
	}
}

// finalError says which ends of a session are for good.
func finalError(err error) error {
	reason := err
	if ce, ok := errors.AsType[websocket.CloseError](err); ok {
		reason = errors.New(ce.Reason)
	}
	switch websocket.CloseStatus(err) {
	case wire.CloseAuthFailed:
		return fmt.Errorf("%w: %w", ErrRefused, reason)
	case wire.CloseAgentGone:
		return fmt.Errorf("%w: %w", ErrGone, reason)
	case wire.CloseSuperseded:
		return fmt.Errorf("%w: %w", ErrSuperseded, reason)
	case wire.CloseProtocol:
		return fmt.Errorf("%w: %w", ErrProtocol, reason)
	}
	if errors.Is(err, ErrRefused) {
		return err
	}
	return nil
}

// session is one connection from dial to end.
func (l *Link) session(ctx context.Context, h Handler) (registered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := l.dial(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.CloseNow() }()
	ack, err := l.handshake(ctx, conn, h.Registration())
	if err != nil {
		return false, err
	}
	h.Registered(ack)
	l.setConn(conn)
	defer l.setConn(nil)
	l.Send(wire.TypeConfigAck, nil)
	h.Ready()
	err = l.serve(ctx, conn, h)
	l.setConn(nil)
	h.Lost(err)
	return true, err
}

func (l *Link) setConn(c *websocket.Conn) {
	l.mu.Lock()
	l.conn = c
	l.mu.Unlock()
}

func (l *Link) dial(ctx context.Context) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	conn, resp, err := websocket.Dial(ctx, l.socket, &websocket.DialOptions{
		HTTPClient: l.cfg.HTTP, HTTPHeader: http.Header{"User-Agent": {"kici-agent/" + l.cfg.Version}},
		CompressionMode: websocket.CompressionDisabled,
	})
	if resp != nil && resp.Body != nil {
		_ = resp.Body.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", l.socket, err)
	}
	conn.SetReadLimit(wire.MaxFrameBytes)
	return conn, nil
}

func (l *Link) handshake(ctx context.Context, conn *websocket.Conn, reg wire.Register) (ack wire.RegisterAck, err error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := write(ctx, conn, wire.TypeAuthRequest, wire.AuthRequest{Token: l.cfg.Token, ProtocolVersion: wire.ProtocolVersion}); err != nil {
		return ack, err
	}
	if err := expect(ctx, conn, wire.TypeAuthSuccess, &wire.AuthSuccess{}); err != nil {
		return ack, err
	}
	if err := write(ctx, conn, wire.TypeRegister, reg); err != nil {
		return ack, err
	}
	return ack, expect(ctx, conn, wire.TypeRegisterAck, &ack)
}

// expect reads until a frame of the given type; heartbeats may come in between.
func expect(ctx context.Context, conn *websocket.Conn, kind string, body any) error {
	for {
		f, err := read(ctx, conn)
		if err != nil {
			return err
		}
		switch f.Type {
		case kind:
			return decodeBody(f, body)
		case wire.TypeAuthFailure:
			var failure wire.AuthFailure
			_ = decodeBody(f, &failure)
			return fmt.Errorf("%w: %s", ErrRefused, failure.Reason)
		case wire.TypeHeartbeat:
		default:
			return fmt.Errorf("%w: %s while waiting for %s", ErrFrame, f.Type, kind)
		}
	}
}

// ErrFrame is a frame that makes no sense.
var ErrFrame = errors.New("unexpected frame")

func decodeBody(f wire.Frame, body any) error {
	if len(f.Body) == 0 {
		return nil
	}
	if err := json.Unmarshal(f.Body, body); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrFrame, f.Type, err)
	}
	return nil
}

// Body decodes a frame's body as T.
func Body[T any](f wire.Frame) (T, error) {
	var body T
	err := decodeBody(f, &body)
	return body, err
}

// serve reads frames until the connection ends, and keeps it alive.
func (l *Link) serve(ctx context.Context, conn *websocket.Conn, h Handler) error {
	silence := time.AfterFunc(silenceLimit, func() { _ = conn.Close(wire.CloseHeartbeat, "no heartbeat") })
	defer silence.Stop()
	ctx, cancel := context.WithCancel(ctx)
	beat := make(chan struct{})
	go func() {
		defer close(beat)
		l.heartbeats(ctx, conn)
	}()
	defer func() { <-beat }()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.closeGently(conn) })
	defer stop() // an ordinary end needs no close frame
	for {
		// Not ctx: its end would tear the connection down before the close frame has left.
		f, err := read(context.WithoutCancel(ctx), conn)
		if err != nil {
			return err
		}
		silence.Reset(silenceLimit)
		switch f.Type {
		case wire.TypeHeartbeat:
		case wire.TypeRateWarning:
			l.slowDown(f)
		default:
			if err := h.Frame(f); err != nil {
				_ = conn.Close(wire.CloseInvalid, "invalid frame")
				return err
			}
		}
	}
}

func (l *Link) closeGently(conn *websocket.Conn) {
	t := time.AfterFunc(closeTimeout, func() { _ = conn.CloseNow() })
	defer t.Stop()
	_ = conn.Close(websocket.StatusGoingAway, "the agent leaves")
}

func (l *Link) slowDown(f wire.Frame) {
	w, err := Body[wire.RateWarning](f)
	if err != nil {
		return
	}
	pause := min(time.Duration(w.RetryAfterMs)*time.Millisecond, 5*time.Second)
	l.mu.Lock()
	l.quietUntil = l.cfg.Now().Add(pause)
	l.mu.Unlock()
	l.cfg.Log.Warn("the orchestrator asks for fewer messages", "pause", pause)
}

// Quiet is how long to wait before sending anything that can wait.
func (l *Link) Quiet() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.quietUntil.Sub(l.cfg.Now()), 0)
}

func (l *Link) heartbeats(ctx context.Context, conn *websocket.Conn) {
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := write(ctx, conn, wire.TypeHeartbeat, wire.Heartbeat{Timestamp: l.cfg.Now().UnixMilli()}); err != nil {
				return
			}
		}
	}
}

// Send writes a frame on the registered connection. false means that there is none or that it broke; then it is the
// caller's matter to say it again after Registered.
func (l *Link) Send(kind string, body any) bool {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn == nil {
		return false
	}
	if err := write(context.Background(), conn, kind, body); err != nil {
		l.cfg.Log.Debug("send", "type", kind, "err", err)
		_ = conn.CloseNow() // the reader ends, and the link is dialled again
		return false
	}
	return true
}

func write(ctx context.Context, conn *websocket.Conn, kind string, body any) error {
	data, err := Encode(kind, body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return conn.Write(ctx, websocket.MessageText, data)
}

// Encode makes a frame; one above the limit is an error.
func Encode(kind string, body any) ([]byte, error) {
	f := wire.Frame{Type: kind}
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", kind, err)
		}
		f.Body = raw
	}
	data, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	if len(data) > wire.MaxFrameBytes {
		return nil, fmt.Errorf("%s has %d bytes, more than a frame may have", kind, len(data))
	}
	return data, nil
}

func read(ctx context.Context, conn *websocket.Conn) (wire.Frame, error) {
	kind, data, err := conn.Read(ctx)
	if err != nil {
		return wire.Frame{}, err
	}
	if kind != websocket.MessageText {
		return wire.Frame{}, fmt.Errorf("%w: binary", ErrFrame)
	}
	return Decode(data)
}

// Decode reads a frame.
func Decode(data []byte) (wire.Frame, error) {
	var f wire.Frame
	if err := json.Unmarshal(data, &f); err != nil {
		return f, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	if f.Type == "" {
		return f, fmt.Errorf("%w: no type", ErrFrame)
	}
	return f, nil
}
