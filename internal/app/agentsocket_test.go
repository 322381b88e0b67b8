//go:build unix

package app

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Agents in containers get this socket and nothing else of the server, so it serves nothing else. The data directory may have a longer
// path than the address of a socket, and a killed server leaves its socket behind.
func TestAgentSocketServesAgentsOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 30))
	folder := filepath.Join(dir, agentSocketFolder)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	old, err := listenSocket(t.Context(), folder, agentSocketName)
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	s, stop := boot(t, Options{DataDir: dir})
	info, err := os.Stat(s.agentSocket)
	if err != nil || info.Mode().Type() != os.ModeSocket || info.Mode().Perm() != 0o666 {
		t.Fatalf("%v %v", info, err)
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		short, release, err := shortPath(folder)
		if err != nil {
			return nil, err
		}
		defer release()
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(short, agentSocketName))
	}}}
	defer client.CloseIdleConnections()
	for path, want := range map[string]int{
		"/ws": 426, "/api/v1/agent/jobs/x": 401, "/health": 404, "/ready": 404, "/metrics": 404, "/": 404, "/login": 404, "/version": 404,
		"/api/v1/admin/runs": 404, "/webhook/x/generic/y": 404, "/cluster/x": 404,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://kici.invalid"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("GET %s: %d, want %d", path, resp.StatusCode, want)
		}
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.agentSocket); err == nil {
		t.Error("the socket is left")
	}
}
