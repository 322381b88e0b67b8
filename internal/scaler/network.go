package scaler

import (
	"net/netip"
	"slices"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/netpolicy"
)

// networkPolicy reads what the agents of a label set may reach (CF-10, HA-2).
func networkPolicy(r reader, f field, kind backend.Kind) netpolicy.Policy {
	m := r.mapping(f, []string{"allowlist", "denyAll", "hostAccess"})
	p := netpolicy.Policy{
		Allow:   parseEach(r, m["allowlist"], netpolicy.ParseNetwork),
		DenyAll: r.boolean(m["denyAll"], false),
	}
	if h := m["hostAccess"]; h.present() {
		p.HostAccess = parseEach(r, h, netpolicy.ParseAccess)
	}
	switch {
	case !f.present():
	case !kind.Isolates:
		r.warn(f, "", "networkPolicy does nothing for agents of type %s", kind.Type)
	case p.HostAccess != nil && len(p.HostAccess) == 0: // XS-107
		r.warn(m["hostAccess"], "leave the key out for what agents need", "its agents reach nothing on this host over the network, the server's port included")
	case slices.ContainsFunc(p.Allow, func(n netip.Prefix) bool { return n.Bits() == 0 }):
		r.warn(m["allowlist"], "", "0.0.0.0/0 opens private networks and the metadata service as well")
	}
	return p
}

// parseEach reads a list, without the elements that are wrong; it is nil only for a list that is not there.
func parseEach[T any](r reader, f field, parse func(string) (T, error)) []T {
	elements := r.list(f)
	if len(elements) > netpolicy.MaxEntries {
		r.fault(f, "", "may have at most %d entries", netpolicy.MaxEntries)
		return nil
	}
	out := make([]T, 0, len(elements))
	for _, e := range elements {
		v, err := parse(r.text(e))
		if err != nil {
			r.fault(e, "", "%s", err)
			continue
		}
		out = append(out, v)
	}
	return out
}
