package forge

import "net/netip"

// Networks that are nobody's own, and yet must not be reached from here.
var closed = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), // this host
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("240.0.0.0/4"),        // reserved, and broadcast
	netip.MustParsePrefix("100.100.100.200/32"), // metadata of a cloud
	netip.MustParsePrefix("fd00:ec2::254/128"),  // metadata of a cloud
	// An IPv4 address within an IPv6 one: a translator on the way would lead to it.
	netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("2001::/32"),
}

// Networks of an organisation besides those that netip knows.
var own = []netip.Prefix{
	netip.MustParsePrefix("100.64.0.0/10"), // of a provider, and of overlay networks
	netip.MustParsePrefix("198.18.0.0/15"), // of test benches
}

// ownNetwork reports whether an operator may allow the address: private, loopback, or shared. Link-local addresses are not among
// them: a cloud's metadata service, with its credentials, lives there.
func ownNetwork(a netip.Addr) bool {
	return (a.IsPrivate() || a.IsLoopback() || in(a, own)) && (a.IsLoopback() || !in(a, closed))
}

// public reports whether the address may be dialled for anybody.
func public(a netip.Addr) bool {
	return a.IsGlobalUnicast() && !a.IsPrivate() && !in(a, own) && !in(a, closed)
}

func in(a netip.Addr, list []netip.Prefix) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
