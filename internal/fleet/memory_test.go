package fleet

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/wire"
)

// rawAgent registers over a bare TCP connection, so that next to nothing of what the test measures is the client's.
func rawAgent(t *testing.T, addr, token, id string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr) //nolint:noctx // local
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	br := bufio.NewReaderSize(c, 512)
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade: %v", err)
	}
	for kind, body := range map[string]any{wire.TypeAuthRequest: wire.AuthRequest{Token: token, ProtocolVersion: 1}} {
		writeMasked(c, kind, body)
	}
	skipFrame(t, br)
	writeMasked(c, wire.TypeRegister, register(id))
	skipFrame(t, br)
	return c
}

// writeMasked sends one text frame with a mask of zeros.
func writeMasked(w io.Writer, kind string, body any) {
	b, _ := json.Marshal(body)
	f, _ := json.Marshal(wire.Frame{Type: kind, Body: b})
	head := []byte{0x81, 0x80 | 126, byte(len(f) >> 8), byte(len(f)), 0, 0, 0, 0}
	if len(f) < 126 {
		head = []byte{0x81, 0x80 | byte(len(f)), 0, 0, 0, 0}
	}
	_, _ = w.Write(append(head, f...))
}

func skipFrame(t *testing.T, r *bufio.Reader) {
	t.Helper()
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		t.Fatal(err)
	}
	n := int(head[1] & 0x7f)
	if n == 126 {
		var ext [2]byte
		_, _ = io.ReadFull(r, ext[:])
		n = int(ext[0])<<8 | int(ext[1])
	}
	if _, err := io.CopyN(io.Discard, r, int64(n)); err != nil {
		t.Fatal(err)
	}
}

// An idle agent costs at most 60 KB and one goroutine (DESIGN §11).
func TestIdleConnectionCost(t *testing.T) {
	if testing.Short() {
		t.Skip("opens a thousand connections")
	}
	r := newRig(t)
	token := r.static("linux")
	addr := strings.TrimPrefix(r.url, "http://")
	conns := []net.Conn{rawAgent(t, addr, token, "warm-up")}
	const n = 1000
	before, routines := inUse(), runtime.NumGoroutine()
	for i := range n {
		conns = append(conns, rawAgent(t, addr, token, fmt.Sprintf("box-%d", i)))
	}
	each := (inUse() - before) / n
	more := runtime.NumGoroutine() - routines
	t.Logf("%d bytes and %.2f goroutines a connection, the client's included", each, float64(more)/n)
	if each > 60<<10 {
		t.Errorf("%d bytes a connection", each)
	}
	if more > n+n/20 {
		t.Errorf("%d goroutines for %d connections", more, n)
	}
	for _, c := range conns {
		_ = c.Close()
	}
}

func inUse() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapInuse + m.StackInuse)
}
