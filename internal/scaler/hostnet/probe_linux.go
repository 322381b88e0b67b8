package hostnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// feature is something that a kernel may lack, and how to find out.
type feature struct {
	cure string // what lacks, and what to do
	try  func(*kernel) error
}

// probe tries every feature in a transaction that deletes its tables again before it ends, so that nothing of it is ever seen.
func (n *Net) probe(ctx context.Context) (Support, error) {
	for _, f := range features {
		if err := n.try(ctx, f); err != nil {
			return Support{}, err
		}
	}
	switch err := n.try(ctx, bridgeMeta); {
	case err == nil:
		return Support{BridgeMeta: true}, nil
	case errors.Is(err, errLacking):
		return Support{}, nil
	default:
		return Support{}, err
	}
}

var (
	errLacking = errors.New("the kernel lacks what network isolation needs")
	errDenied  = errors.New("network isolation: this process may not change the host's firewall; give it CAP_NET_ADMIN" +
		" (AmbientCapabilities=CAP_NET_ADMIN in its systemd unit), or run it as root")
)

func (n *Net) try(ctx context.Context, f feature) error {
	k, err := n.dial(ctx)
	if err == nil {
		k.names = newNames(n.names.ip.Name + "-check")
		err = errors.Join(f.try(k), k.conn.Flush(), k.conn.CloseLasting())
	}
	return f.diagnose(err)
}

// diagnose says what a failed attempt means.
func (f feature) diagnose(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrPermission):
		return errDenied
	case isLacking(err):
		return fmt.Errorf("network isolation: %w: %s (%w)", errLacking, f.cure, brief{err})
	default:
		return fmt.Errorf("network isolation: try nftables: %w", brief{err})
	}
}

// isLacking: the kernel has no such table family, expression, set or socket.
func isLacking(err error) bool {
	for _, e := range []syscall.Errno{
		syscall.ENOENT, syscall.EOPNOTSUPP, syscall.EAFNOSUPPORT, syscall.EPROTONOSUPPORT, syscall.EINVAL, syscall.ENOSYS, syscall.ETIMEDOUT,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return errors.Is(err, os.ErrDeadlineExceeded) // a kernel without nftables answers a transaction once, not message by message
}

var features = []feature{
	{"nftables (CONFIG_NF_TABLES, CONFIG_NF_TABLES_IPV4; modprobe nf_tables)", tryTable(func(k *kernel) *nftables.Table { return k.ip })},
	{"nftables for IPv6 (CONFIG_NF_TABLES_IPV6)", tryTable(func(k *kernel) *nftables.Table { return k.ip6 })},
	{"nftables for bridges (CONFIG_NF_TABLES_BRIDGE)", tryTable(func(k *kernel) *nftables.Table { return k.bridge })},
	{"connection tracking in nftables (CONFIG_NFT_CT; modprobe nft_ct)", tryRule(reply())},
	{"maps, dynamic sets or counters of nftables; Linux 5.6 or later is needed", tryAll},
}

var bridgeMeta = feature{"CONFIG_NFT_BRIDGE_META", func(k *kernel) error {
	c := k.hooked(k.bridge, "forward", nftables.ChainHookForward, filterBridge)
	k.conn.AddTable(k.bridge)
	k.putChain(chain{c, []chainRule{{"", []expr.Any{bridgeIn(reg1), equal(ifname("none"))}}}})
	k.conn.DelTable(k.bridge)
	return nil
}}

func tryTable(which func(*kernel) *nftables.Table) func(*kernel) error {
	return func(k *kernel) error {
		k.conn.AddTable(which(k))
		k.conn.DelTable(which(k))
		return nil
	}
}

func tryRule(exprs []expr.Any) func(*kernel) error {
	return func(k *kernel) error {
		c := k.hooked(k.ip, "forward", nftables.ChainHookForward, beforeFilter)
		k.conn.AddTable(k.ip)
		k.putChain(chain{c, []chainRule{{"", exprs}}})
		k.conn.DelTable(k.ip)
		return nil
	}
}

// tryAll makes a baseline and an agent, of a bridge that cannot be.
func tryAll(k *kernel) error {
	b := Bridge{Name: "kici-check", Subnet: netip.MustParsePrefix("192.0.2.0/24"), Gateway: netip.MustParseAddr("192.0.2.1")}
	r := Rules{Agent: "check", Addr: netip.MustParseAddr("192.0.2.2"), Resolvers: []netip.Addr{b.Gateway}}
	if err := errors.Join(k.putBaseline(b, Support{}), k.queueAgent(b, "check", r)); err != nil {
		return err
	}
	for _, t := range []*nftables.Table{k.ip, k.ip6, k.bridge} {
		k.conn.DelTable(t)
	}
	return nil
}
