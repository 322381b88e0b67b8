package scaler

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/store/storetest"
)

// collectRig is a node whose backend collects; it counts regular looks and those on a full disk.
func collectRig(t *testing.T, do func(backend.Collect) ([]backend.Collected, error)) (r *rig, regular, full *atomic.Int64) {
	r = newRig(t, storetest.SQLiteDatabase(t), oneScaler)
	regular, full = new(atomic.Int64), new(atomic.Int64)
	r.host.Volume = "/agents"
	r.host.OnCollect = func(_ context.Context, c backend.Collect) ([]backend.Collected, error) {
		if c.Full == nil {
			regular.Add(1)
		} else {
			full.Add(1)
		}
		return do(c)
	}
	r.start() // with a backend that collects
	return r, regular, full
}

// settle ticks, and waits for what is collected meanwhile.
func (r *rig) settle() {
	r.t.Helper()
	r.tick()
	r.node.chores.idle.Wait()
}

// What nobody needs is looked for a minute after the start and every ten minutes then; it is counted, also when not all of it worked.
func TestCollectIsRegular(t *testing.T) {
	r, regular, full := collectRig(t, func(backend.Collect) ([]backend.Collected, error) {
		return []backend.Collected{{Kind: backend.CollectedImage, Name: "x", Bytes: 5}, {Kind: backend.CollectedImage, Name: "y", Bytes: 7}}, errors.New("not all")
	})
	var got []int64
	for range 25 { // minutes
		r.settle()
		got = append(got, regular.Load())
		r.now.Add(time.Minute.Milliseconds())
	}
	for minute, want := range map[int]int64{0: 0, 1: 1, 10: 1, 11: 2, 20: 2, 21: 3, 24: 3} {
		if got[minute] != want {
			t.Errorf("after %d minutes %d, want %d", minute, got[minute], want)
		}
	}
	if full.Load() != 0 {
		t.Error("the disk was never full")
	}
	count := func(v *prometheus.CounterVec) float64 {
		var m dto.Metric
		if err := v.WithLabelValues("one", backend.CollectedImage).Write(&m); err != nil {
			t.Fatal(err)
		}
		return m.GetCounter().GetValue()
	}
	things, bytes := count(r.node.metrics.collected), count(r.node.metrics.collectedBytes)
	if things != 6 || bytes != 36 {
		t.Errorf("counted %v things of %v bytes", things, bytes)
	}
}

// A disk that is too full is cleared first; only when that is not enough the scaler is full. It is tried again every minute.
func TestFullDiskIsClearedFirst(t *testing.T) {
	var free, gain atomic.Int64
	free.Store(10 << 30)
	gain.Store(200 << 20)
	r, _, full := collectRig(t, func(c backend.Collect) ([]backend.Collected, error) {
		if c.Full != nil {
			for range 3 {
				if !c.Full() {
					break
				}
				free.Add(gain.Load())
			}
		}
		return nil, nil
	})
	r.node.d.FreeDisk = func(string) (int64, error) { return free.Load(), nil }
	state := func() string {
		t.Helper()
		rows, err := r.st.Read().NodeScalers(t.Context(), nodeID)
		if err != nil || rows[0].Ready != (rows[0].NotReady == "") {
			t.Fatalf("%+v %v", rows, err)
		}
		return rows[0].NotReady
	}
	r.settle()
	free.Store(100 << 20)
	r.request("a")
	r.settle() // 100, 300: enough
	r.want("a", "booting")
	r.settle()
	if state() != "" || full.Load() != 1 || free.Load() != 300<<20 {
		t.Errorf("%q after %d attempts, %d bytes free", state(), full.Load(), free.Load())
	}
	free.Store(100 << 20)
	gain.Store(0)
	r.settle() // a new episode; nothing comes of it
	r.settle()
	if !strings.Contains(state(), "has 100 MiB free") || full.Load() != 2 {
		t.Errorf("%q after %d attempts", state(), full.Load())
	}
	r.now.Add(relieveEvery.Milliseconds() - 1)
	r.settle()
	if full.Load() != 2 {
		t.Error("it was tried again too soon")
	}
	gain.Store(1 << 30) // something is no longer used
	r.now.Add(1)
	r.settle()
	if !strings.Contains(state(), "MiB free") { // until it is measured again
		t.Errorf("%q", state())
	}
	r.settle()
	if state() != "" || full.Load() != 3 {
		t.Errorf("%q after %d attempts", state(), full.Load())
	}
}

// A collection that hangs keeps a scaler open for a minute, not for ever, and the node can be closed.
func TestCollectThatHangs(t *testing.T) {
	begun := make(chan struct{}, 8)
	r, _, _ := collectRig(t, nil)
	r.host.OnCollect = func(ctx context.Context, _ backend.Collect) ([]backend.Collected, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	r.node.d.FreeDisk = func(string) (int64, error) { return 0, nil }
	r.tick()
	<-begun
	r.tick()
	m := r.node.scalers[ScalerID{"one", "fake"}]
	if m.full != "" {
		t.Errorf("full at once: %s", m.full)
	}
	r.now.Add(relieveTimeout.Milliseconds())
	r.tick()
	if m.full == "" {
		t.Error("still open")
	}
	if err := r.node.Close(); err != nil {
		t.Error(err)
	}
}
