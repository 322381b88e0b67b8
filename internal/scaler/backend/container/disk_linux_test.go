package container

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/kici-go/kici/internal/scaler/backend/container/engineapi"
	"github.com/kici-go/kici/internal/scaler/backend/container/enginetest"
)

// The disk that counts is that of the engine's folder, as long as it is on this machine.
func TestVolumeIsTheEnginesFolder(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r := newRig(t, e)
		b := r.backend("one")
		if got := b.Capabilities().Volume; got != e.Root() {
			t.Errorf("got %q, want %q", got, e.Root())
		}
		again, err := b.Reload(r.entry("one"))
		if err != nil || again.Capabilities().Volume != e.Root() {
			t.Errorf("after a reload: %q, %v", again.Capabilities().Volume, err)
		}
		b.mu.Lock()
		b.copied = true // the engine was seen to have other files than we
		b.mu.Unlock()
		if got := b.Capabilities().Volume; got != "" {
			t.Errorf("an engine with other files: %q", got)
		}
	})
}

// An engine elsewhere has no disk that could be looked at; that is no reason not to be ready.
func TestVolumeElsewhere(t *testing.T) {
	e := enginetest.Get(t, "docker")
	r := newRig(t, e)
	r.options = map[string]any{keyHost: e.TCP, keyIsolation: false}
	if got := r.backend("one").Capabilities().Volume; got != "" {
		t.Errorf("got %q", got)
	}
}

// What an engine says of its folder is believed only when there is such a folder.
func TestVolumeThatIsNotHere(t *testing.T) {
	here := t.TempDir()
	for said, want := range map[string]string{here: here, filepath.Join(here, "none"): "", "": "", "relative": ""} {
		socket := filepath.Join(t.TempDir(), "s")
		l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintf(w, `{"DockerRootDir":%q}`, said) })}
		go func() { _ = server.Serve(l) }()
		api, err := engineapi.New("unix://"+socket, "")
		if err != nil {
			t.Fatal(err)
		}
		g := &engine{at: endpoint{URL: "unix://" + socket}, api: api, log: slog.New(slog.DiscardHandler)}
		if got := g.findRoot(context.Background()); got != want {
			t.Errorf("%q: got %q, want %q", said, got, want)
		}
		api.Close()
		_ = server.Close()
	}
}
