package netpolicy

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// MaxEntries bounds each list of a policy.
const MaxEntries = 128

// Policy is the networkPolicy of a label set. The zero value is the default: the internet, nothing private, and of the host what an
// agent needs.
type Policy struct {
	Allow   []netip.Prefix // IPv4 networks that are open, private or not
	DenyAll bool           // nothing beyond Allow, the resolvers and the host
	// HostAccess replaces the default outright (HA-4): nil takes DefaultAccess, an empty list closes the host, the server included.
	HostAccess []Access
}

// IsZero reports whether it is the default.
func (p Policy) IsZero() bool { return len(p.Allow) == 0 && !p.DenyAll && p.HostAccess == nil }

// Access is what the policy opens on the host: its own list, or the default.
func (p Policy) Access(byDefault []Access) []Access {
	if p.HostAccess != nil {
		return p.HostAccess
	}
	return byDefault
}

// DefaultAccess is what agents need of their host: the resolver on the gateway, the server's port, and storage (HA-5). server and
// storage are the addresses as agents are told them; without an answer to "which port", an address opens nothing. Storage opens its
// own address only when it is named by number (HA-6). Duplicates are removed.
func DefaultAccess(gateway netip.Addr, server string, storage ...string) []Access {
	var out []Access
	add := func(a Access) {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	if gateway.Is4() {
		add(Access{netip.PrefixFrom(gateway, 32), 53})
	}
	if _, port := endpoint(server); port != 0 {
		add(Access{Anywhere, port})
	}
	for _, s := range storage {
		u, port := endpoint(s)
		if port == 0 {
			continue
		}
		if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
			if addr.Is4() {
				add(Access{netip.PrefixFrom(addr, 32), port})
			}
		} else if u.Port() != "" {
			add(Access{Anywhere, port})
		}
	}
	return out
}

var schemePorts = map[string]uint16{"ws": 80, "http": 80, "wss": 443, "https": 443}

// endpoint returns a URL and the port that it leads to; 0 when that cannot be said.
func endpoint(s string) (*url.URL, uint16) {
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" {
		return nil, 0
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return nil, 0
		}
		return u, uint16(n)
	}
	return u, schemePorts[u.Scheme]
}

// String is the policy in words, "" for the default.
func (p Policy) String() string {
	var parts []string
	if p.DenyAll {
		parts = append(parts, "denyAll")
	}
	if len(p.Allow) > 0 {
		parts = append(parts, "allowlist "+words(p.Allow))
	}
	if p.HostAccess != nil {
		parts = append(parts, "hostAccess "+cmp.Or(words(p.HostAccess), "none"))
	}
	return strings.Join(parts, ", ")
}

func words[T fmt.Stringer](list []T) string {
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = e.String()
	}
	return strings.Join(out, " ")
}
