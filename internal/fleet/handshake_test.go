package fleet

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/wire"
)

func TestRegisterStatic(t *testing.T) { onBoth(t, registerStatic) }

func registerStatic(t *testing.T, r *rig) {
	token := r.static("linux", "gpu")
	p, ack := r.connect(token, register("box-1", "linux"))
	want := []string{"kici:arch:amd64", "kici:arch:x64", "kici:host:box", "kici:os:linux", "linux"}
	if !slices.Equal(ack.Labels, want) || ack.ScalerManaged || ack.WarmPool || ack.PendingDispatch {
		t.Errorf("ack %+v", ack)
	}
	row := r.agent("box-1")
	if row.State != "online" || row.InstanceID != instance || row.Type != typeStatic || row.SessionID == "" {
		t.Errorf("row %+v", row)
	}
	p.leave()
	r.eventually("gone", func() bool { return r.agent("box-1").State == "gone" })
	if row = r.agent("box-1"); row.GoneReason != ci.GoneDisconnected || row.InstanceID != "" {
		t.Errorf("row %+v", row)
	}
	_, ack = r.connect(token, register("box-1")) // claims nothing: has all
	if !slices.Contains(ack.Labels, "gpu") || r.agent("box-1").State != "online" {
		t.Errorf("second life: %+v, %s", ack, r.agent("box-1").State)
	}
}

// A drain ends with the agent's life: it holds over a broken link, and the next life gets work again.
func TestDrainEndsWithTheLife(t *testing.T) { onBoth(t, drainEndsWithTheLife) }

func drainEndsWithTheLife(t *testing.T, r *rig) {
	token := r.static("linux")
	p, _ := r.connect(token, register("box-1"))
	r.write(func(ctx context.Context, tx *store.Tx) error { return tx.ForceDraining(ctx, "box-1") })
	p.expect(wire.TypeDrain, &wire.Drain{})
	p.drop()
	p, _ = r.connect(token, register("box-1"))
	if !r.agent("box-1").Draining {
		t.Error("a broken link ended the drain")
	}
	p.leave()
	r.eventually("gone", func() bool { return r.agent("box-1").State == "gone" })
	r.connect(token, register("box-1"))
	if row := r.agent("box-1"); row.Draining || row.State != "online" {
		t.Errorf("second life: %+v", row)
	}
}

// The node hears of a lost link at once, whether the agent had a job or not: it need not guess whether a dead process still has one.
func TestNodeHearsOfLostLinks(t *testing.T) { onBoth(t, nodeHearsOfLostLinks) }

func nodeHearsOfLostLinks(t *testing.T, r *rig) {
	busy, d, _ := dispatched(r)
	busy.status(d, 1, "running")
	busy.expect(wire.TypeReportAck, nil)
	idle, _ := r.connect(r.managed("scaler-bare-metal-0009", "linux"), register("scaler-bare-metal-0009"))
	for name, p := range map[string]*peer{"busy": busy, "idle": idle} {
		sub := r.st.Subscribe(store.TopicAgents, instance)
		select { // what came before
		case <-sub.C():
		case <-time.After(100 * time.Millisecond):
		}
		p.drop()
		select {
		case <-sub.C():
		case <-time.After(time.Minute):
			t.Errorf("%s: the node was not told", name)
		}
		sub.Close()
	}
}

func TestRegisterManaged(t *testing.T) { onBoth(t, registerManaged) }

func registerManaged(t *testing.T, r *rig) {
	r.write(func(ctx context.Context, tx *store.Tx) error {
		return tx.NodeSetBackoff(ctx, db.NodeSetBackoffParams{NodeID: instance, Scaler: "s", Failures: 3, UntilAt: 1 << 60})
	})
	token := r.managed("scaler-bare-metal-0001", "linux", "kici:agent:bare-metal")
	_, ack := r.connect(token, register("scaler-bare-metal-0001", "linux", "kici:agent:bare-metal", "kici:os:linux"))
	if !ack.ScalerManaged || !ack.WarmPool || !slices.Contains(ack.Labels, "kici:agent:bare-metal") {
		t.Errorf("ack %+v", ack)
	}
	if row := r.agent("scaler-bare-metal-0001"); row.State != "online" || !row.RegisteredAt.Valid {
		t.Errorf("row %+v", row)
	}
	if rows, _ := r.st.Read().NodeBackoffs(t.Context(), instance); len(rows) != 0 {
		t.Errorf("back-off stays: %+v", rows) // XS-34
	}
}

func TestRefusedRegistrations(t *testing.T) {
	r := newRig(t)
	static, other := r.static("linux"), r.static("linux")
	rooted := r.static("linux", labelRoot)
	managed := r.managed("scaler-bare-metal-0002", "linux")
	ended := r.managed("scaler-bare-metal-0003", "linux")
	late := r.managed("scaler-bare-metal-0004", "linux")
	again := r.managed("scaler-bare-metal-0005", "linux")
	p, _ := r.connect(again, register("scaler-bare-metal-0005"))
	p.drop()
	r.write(func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.DispatchWithdraw(ctx, tx.Now(), "withdrawn", "scaler-bare-metal-0003")
		return err
	})
	r.connect(static, register("taken"))
	r.offset.Store(int64(5 * time.Minute)) // tokens are past their expiry now
	row := func(id string) sql.NullInt64 {
		rows, _ := r.st.Read().AgentTokens(t.Context(), "default", "")
		for _, a := range rows {
			if a.AgentID == id {
				return a.ExpiresAt
			}
		}
		return sql.NullInt64{}
	}
	if !row("scaler-bare-metal-0004").Valid {
		t.Fatal("the test's token must expire")
	}
	asRoot := register("root-1")
	asRoot.RunningAsUID = 1000
	for name, c := range map[string]struct {
		token string
		reg   wire.Register
		code  int
	}{
		"unknown token":           {"kat_" + strings.Repeat("0", 64), register("x"), wire.CloseAuthFailed},
		"token of another agent":  {managed, register("scaler-bare-metal-0005"), wire.CloseAuthFailed},
		"XS-45 scaler id":         {static, register("scaler-bare-metal-9999"), wire.CloseAuthFailed},
		"ended":                   {ended, register("scaler-bare-metal-0003"), wire.CloseAgentGone},
		"expired":                 {late, register("scaler-bare-metal-0004"), wire.CloseAuthFailed},
		"label beyond the token":  {static, register("x", "gpu"), wire.CloseAuthFailed},
		"reserved label":          {static, register("x", "kici:scaler:s"), wire.CloseAuthFailed},
		"root without being it":   {rooted, asRoot, wire.CloseAuthFailed},
		"another token for an id": {other, register("taken"), wire.CloseInvalid},
		"bad id":                  {static, register("../x"), wire.CloseInvalid},
		"no id":                   {static, register(""), wire.CloseInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			p := r.dial()
			p.send(wire.TypeAuthRequest, wire.AuthRequest{Token: c.token, ProtocolVersion: wire.ProtocolVersion})
			p.send(wire.TypeRegister, c.reg)
			if code := p.closeCode(); code != c.code {
				t.Errorf("close code %d, want %d", code, c.code)
			}
		})
	}
	// D13: the same token that has expired is good for the agent's reconnects.
	if _, ack := r.connect(again, register("scaler-bare-metal-0005")); ack.AgentID != "scaler-bare-metal-0005" {
		t.Errorf("reconnect with an expired token: %+v", ack)
	}
}

func TestHandshakeLimits(t *testing.T) {
	r := newRig(t, func(s *Settings) { s.AuthWithin, s.RegisterWithin = 300*time.Millisecond, 300*time.Millisecond })
	if code := r.dial().closeCode(); code != wire.CloseHandshake {
		t.Errorf("silent: %d", code)
	}
	p := r.dial()
	p.send(wire.TypeAuthRequest, wire.AuthRequest{Token: r.static(), ProtocolVersion: wire.ProtocolVersion})
	if code := p.closeCode(); code != wire.CloseHandshake {
		t.Errorf("not registering: %d", code)
	}
}

func TestInvalidFrames(t *testing.T) {
	r := newRig(t)
	p := r.dial()
	p.send(wire.TypeAuthRequest, wire.AuthRequest{Token: "x", ProtocolVersion: 0})
	if code := p.closeCode(); code != wire.CloseProtocol {
		t.Errorf("old protocol: %d", code)
	}
	p = r.dial()
	_ = p.conn.Write(t.Context(), websocket.MessageText, []byte("not json"))
	if code := p.closeCode(); code != wire.CloseInvalid {
		t.Errorf("garbage: %d", code)
	}
	p = r.dial()
	_ = p.conn.Write(t.Context(), websocket.MessageText, []byte(`{"type":"`+strings.Repeat("x", wire.MaxFrameBytes)+`"}`))
	if code := p.closeCode(); code != int(websocket.StatusMessageTooBig) {
		t.Errorf("huge frame: %d", code)
	}
}

// XS-46: a half-open socket is superseded by the reconnect, and its late end touches nothing.
func TestXS46Supersede(t *testing.T) { onBoth(t, supersede) }

func supersede(t *testing.T, r *rig) {
	token := r.managed("scaler-bare-metal-0001", "linux")
	first, _ := r.connect(token, register("scaler-bare-metal-0001"))
	before := r.agent("scaler-bare-metal-0001").SessionID
	second, _ := r.connect(token, register("scaler-bare-metal-0001"))
	if code := first.closeCode(); code != wire.CloseSuperseded {
		t.Errorf("close code %d", code)
	}
	first.drop()
	time.Sleep(50 * time.Millisecond)
	row := r.agent("scaler-bare-metal-0001")
	if row.State != "online" || row.SessionID == "" || row.SessionID == before || r.fleet.Connected() != 1 {
		t.Errorf("row %+v, %d sessions", row, r.fleet.Connected())
	}
	second.send(wire.TypeRegister, register("scaler-bare-metal-0001")) // AG-11: again on the same socket
	var ack wire.RegisterAck
	second.expect(wire.TypeRegisterAck, &ack)
	if !ack.ScalerManaged || r.fleet.Connected() != 1 {
		t.Errorf("ack %+v", ack)
	}
}

// Many sockets of one agent at once: one stays, and the row and the table agree which.
func TestRacingRegistrations(t *testing.T) {
	r := newRig(t)
	token := r.managed("scaler-bare-metal-0001", "linux")
	var wg sync.WaitGroup
	for range 16 {
		p := r.dial()
		wg.Go(func() {
			p.send(wire.TypeAuthRequest, wire.AuthRequest{Token: token, ProtocolVersion: wire.ProtocolVersion})
			p.send(wire.TypeRegister, register("scaler-bare-metal-0001"))
			for f := range p.frames {
				if f.Type == wire.TypeRegisterAck {
					return
				}
			}
		})
	}
	wg.Wait()
	r.eventually("one socket", func() bool { return r.fleet.sockets.Load() == 1 })
	s := r.fleet.session("scaler-bare-metal-0001")
	if row := r.agent("scaler-bare-metal-0001"); s == nil || row.SessionID != s.id || row.State != "online" {
		t.Errorf("row %+v, session %v", row, s)
	}
}

// XS-50: a revoked token ends the connection and the agent.
func TestXS50Revoked(t *testing.T) { onBoth(t, revoked) }

func revoked(t *testing.T, r *rig) {
	p, _ := r.connect(r.static("linux"), register("box"))
	rows, _ := r.st.Read().AgentTokens(t.Context(), "default", "")
	r.write(func(ctx context.Context, tx *store.Tx) error {
		tx.Notify(store.TopicAgentTokens, rows[0].ID)
		_, err := tx.RevokeAgentToken(ctx, sql.NullInt64{Int64: tx.Now(), Valid: true}, rows[0].ID, "default")
		return err
	})
	if code := p.closeCode(); code != wire.CloseAuthFailed {
		t.Errorf("close code %d", code)
	}
	if row := r.agent("box"); row.State != "gone" || row.GoneReason != ci.GoneRevoked {
		t.Errorf("row %+v", row)
	}
}

// XS-49: heartbeats go out, and silence ends the session.
func TestXS49Heartbeat(t *testing.T) {
	r := newRig(t)
	p, _ := r.connect(r.static("linux"), register("box"))
	r.offset.Store(int64(31 * time.Second))
	p.expect(wire.TypeHeartbeat, nil)
	r.offset.Store(int64(181 * time.Second))
	if code := p.closeCode(); code != wire.CloseHeartbeat {
		t.Errorf("close code %d", code)
	}
	r.eventually("link lost", func() bool { return r.agent("box").InstanceID == "" })
}

func FuzzDecodeFrame(f *testing.F) {
	for _, s := range []string{
		`{"type":"heartbeat","body":{"timestamp":1}}`, `{"type":"job.status","body":{"jobId":"j","status":"success","outputs":{"a":"b\u0000"}}}`,
		`{"type":"step.status","body":{"jobId":"j","stepIndex":-1,"status":"running"}}`, `{"type":""}`, `[]`, "{", `{"type":"job.ack","body":[]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		frame, err := decodeFrame(data)
		if err != nil {
			return
		}
		r, known, err := decodeReport(frame)
		if err != nil || !known {
			return
		}
		if r.key.id == "" || r.seq < 0 {
			t.Errorf("accepted %+v", r)
		}
		if r.job != nil {
			for k, v := range r.job.Outputs {
				if strings.ContainsRune(k+v, 0) {
					t.Error("NUL in outputs")
				}
			}
		}
		if r.step != nil && (r.step.StepIndex < 0 || len(r.step.Name) > maxStepName+4) {
			t.Errorf("accepted %+v", r.step)
		}
	})
}
