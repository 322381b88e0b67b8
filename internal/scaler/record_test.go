package scaler

import "testing"

func TestWayHome(t *testing.T) {
	for _, c := range []struct{ node, own, socket, url, path string }{
		{"ws://127.0.0.1:4000/ws", "", "/s", "ws://127.0.0.1:4000/ws", "/s"},
		{"ws://localhost:4000/ws", "", "/s", "ws://localhost:4000/ws", "/s"},
		{"ws://[::1]:4000/ws", "", "/s", "ws://[::1]:4000/ws", "/s"},
		{"ws://127.0.0.1:4000/ws", "", "", "ws://127.0.0.1:4000/ws", ""},
		{"ws://127.0.0.1:4000/ws", "wss://ci.example.com/ws", "/s", "wss://ci.example.com/ws", ""},
		{"ws://127.0.0.1:4000/ws", "ws://127.0.0.1:4000", "/s", "ws://127.0.0.1:4000", ""},
		{"wss://ci.example.com/ws", "", "/s", "wss://ci.example.com/ws", ""},
		{"ws://10.1.2.3:4000/ws", "", "/s", "ws://10.1.2.3:4000/ws", ""},
		{"://", "", "/s", "://", ""},
	} {
		if url, path := wayHome(c.node, c.own, c.socket); url != c.url || path != c.path {
			t.Errorf("%s, %q: %s %q", c.node, c.own, url, path)
		}
	}
}
