package netpolicy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestParseAccess(t *testing.T) {
	for _, tc := range []struct{ entry, canonical string }{
		{"10.0.0.0/8", "10.0.0.0/8"},
		{"10.1.2.3/8:443", "10.0.0.0/8:443"},
		{"172.30.0.1:53", "172.30.0.1:53"},
		{"172.30.0.1/32", "172.30.0.1"},
		{"172.30.0.1:*", "172.30.0.1"},
		{"*", "*"},
		{"*:*", "*"},
		{"*:4000", "*:4000"},
		{"0.0.0.0/0:1", "*:1"},
		{"255.255.255.255/32:65535", "255.255.255.255:65535"},
	} {
		a, err := ParseAccess(tc.entry)
		if err != nil || a.String() != tc.canonical {
			t.Errorf("%s: %s, %v, want %s", tc.entry, a, err, tc.canonical)
		}
	}
}

func TestParseAccessRefuses(t *testing.T) {
	for entry, why := range map[string]string{
		"":                        "must be an IPv4 address",
		"example.com:80":          "must be an IPv4 address",
		":80":                     "must be an IPv4 address",
		"10.0.0":                  "must be an IPv4 address",
		"10.0.0.256":              "must be an IPv4 address",
		"010.0.0.1":               "must be an IPv4 address",
		"10.0.0.0/33":             "IPv4 network",
		"10.0.0.0/":               "IPv4 network",
		"*/8":                     "IPv4 network",
		"*:0":                     "1 to 65535",
		"*:65536":                 "1 to 65535",
		"*:":                      "1 to 65535",
		"*:+80":                   "1 to 65535",
		"*:-1":                    "1 to 65535",
		"*:http":                  "1 to 65535",
		"::1":                     "IPv4 only",
		"[::1]:80":                "IPv4 only",
		"fe80::/10":               "IPv4 only",
		strings.Repeat("1", 1000): "too long",
	} {
		a, err := ParseAccess(entry)
		if err == nil {
			t.Errorf("%q was read as %s", entry, a)
			continue
		}
		if s := err.Error(); !strings.Contains(s, why) || !strings.Contains(s, entry[:min(len(entry), 30)]) || len(s) > 200 {
			t.Errorf("%q: %s; it must name the entry and say %q", entry, s, why)
		}
	}
}

func FuzzParseAccess(f *testing.F) {
	for _, s := range []string{"*", "*:80", "10.0.0.0/8:443", "1.2.3.4", "1.2.3.4:*", "::1", "1.2.3.4/0", ":"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAccess(s)
		if err != nil {
			return
		}
		if !a.To.IsValid() || !a.To.Addr().Is4() || a.To != a.To.Masked() {
			t.Fatalf("%q: %v is no IPv4 network", s, a.To)
		}
		if again, err := ParseAccess(a.String()); err != nil || again != a {
			t.Fatalf("%q: %s reads as %s, %v", s, a, again, err)
		}
	})
}

func TestDefaultAccess(t *testing.T) {
	gateway := netip.MustParseAddr("172.30.0.1")
	for _, tc := range []struct {
		name, server string
		storage      []string
		want         string
	}{
		{"port of the URL", "ws://127.0.0.1:4000/ws", nil, "172.30.0.1:53 *:4000"},
		{"ws", "ws://ci.example.com/ws", nil, "172.30.0.1:53 *:80"},
		{"http", "http://ci.example.com", nil, "172.30.0.1:53 *:80"},
		{"wss", "wss://ci.example.com", nil, "172.30.0.1:53 *:443"},
		{"https", "https://ci.example.com", nil, "172.30.0.1:53 *:443"},
		{"no URL", "", nil, "172.30.0.1:53"},
		{"unknown scheme", "ftp://x", nil, "172.30.0.1:53"},
		{"no number", "ws://x:y", nil, "172.30.0.1:53"},
		{"storage by address", "ws://x:1", []string{"http://10.0.0.9:9000"}, "172.30.0.1:53 *:1 10.0.0.9:9000"},
		{"storage by address without port", "ws://x:1", []string{"https://10.0.0.9/b"}, "172.30.0.1:53 *:1 10.0.0.9:443"},
		{"storage by name and port", "ws://x:1", []string{"http://minio:9000"}, "172.30.0.1:53 *:1 *:9000"},
		{"storage by name", "ws://x:1", []string{"https://s3.amazonaws.com"}, "172.30.0.1:53 *:1"},
		{"storage by IPv6", "ws://x:1", []string{"http://[fd00::1]:9000"}, "172.30.0.1:53 *:1"},
		{"unparsable storage", "ws://x:1", []string{"%", "", "minio:9000"}, "172.30.0.1:53 *:1"},
		{"twice the same", "ws://x:9000", []string{"http://minio:9000", "http://other:9000"}, "172.30.0.1:53 *:9000"},
	} {
		var got []string
		for _, a := range DefaultAccess(gateway, tc.server, tc.storage...) {
			got = append(got, a.String())
		}
		if s := strings.Join(got, " "); s != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, s, tc.want)
		}
	}
}

// TestXS107EmptyHostAccess: an empty list is a list, and replaces the default outright.
func TestXS107EmptyHostAccess(t *testing.T) {
	byDefault := []Access{{Anywhere, 4000}}
	own := []Access{{Anywhere, 1}}
	for _, tc := range []struct {
		name string
		set  []Access
		want []Access
	}{
		{"not set", nil, byDefault},
		{"empty", []Access{}, []Access{}},
		{"a list", own, own},
	} {
		if got := (Policy{HostAccess: tc.set}).Access(byDefault); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
