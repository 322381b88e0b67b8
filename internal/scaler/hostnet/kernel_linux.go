package hostnet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
)

// kernel is one connection to nftables. What is queued on conn becomes one transaction by flush.
type kernel struct {
	names
	conn *nftables.Conn
}

const (
	netlinkTimeout = 30 * time.Second
	// The kernel acknowledges every message of a transaction and repeats every rule; what does not fit in the buffer is lost.
	netlinkBuffer = 8 << 20
	attempts      = 5
)

// retry runs f with a connection of its own, again when another process changed the rules between reading and writing.
func (n *Net) retry(ctx context.Context, f func(*kernel) error) error {
	for i := 1; ; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		k, err := n.dial(ctx)
		if err == nil {
			err = errors.Join(f(k), k.conn.CloseLasting())
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, os.ErrPermission):
			return errDenied
		case i == attempts || !isRace(err):
			return fmt.Errorf("network isolation: %w", brief{err})
		}
	}
}

// brief is an error in one line. nftables joins one for each message of a transaction, and most often the first is the cause of all.
type brief struct{ error }

func (b brief) Unwrap() error { return b.error }

func (b brief) Error() string {
	first, rest, more := strings.Cut(b.error.Error(), "\n")
	if more {
		first += fmt.Sprintf(" (and %d more errors)", strings.Count(rest, "\n")+1)
	}
	return first
}

func isRace(err error) bool {
	return slices.ContainsFunc([]error{syscall.ENOENT, syscall.EEXIST, syscall.EBUSY, syscall.EINTR, syscall.EAGAIN}, func(e error) bool { return errors.Is(err, e) })
}

func (n *Net) dial(ctx context.Context) (*kernel, error) {
	until := time.Now().Add(netlinkTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	bound := func(c *netlink.Conn) error {
		return errors.Join(c.SetDeadline(until), c.SetReadBuffer(netlinkBuffer), c.SetWriteBuffer(netlinkBuffer))
	}
	options := []nftables.ConnOption{nftables.AsLasting(), nftables.WithSockOptions(bound)}
	if n.ns != nil {
		options = append(options, nftables.WithNetNSFd(int(n.ns.Fd())))
	}
	conn, err := nftables.New(options...)
	if err != nil {
		return nil, err
	}
	return &kernel{names: n.names, conn: conn}, nil
}

// entries lists the agents of the maps.
func (k *kernel) entries() ([]entry, error) {
	forward, err := k.agentsOf(k.forward)
	if err != nil {
		return nil, err
	}
	input, err := k.agentsOf(k.input)
	if err != nil {
		return nil, err
	}
	return merge(forward, input), nil
}

func (k *kernel) agentsOf(m *nftables.Set) ([]entry, error) {
	elements, err := k.elements(m)
	if err != nil {
		return nil, fmt.Errorf("list agents: %w", err)
	}
	var out []entry
	for _, el := range elements {
		bridge, addr, ok := parsePlace(el.Key)
		e, ours := parseComment(el.Comment)
		if !ok || !ours {
			continue
		}
		e.Bridge, e.Addr = bridge, addr
		out = append(out, e)
	}
	return out, nil
}

// elements lists a set; one that is not there is empty.
func (k *kernel) elements(s *nftables.Set) ([]nftables.SetElement, error) {
	if _, err := k.conn.GetSetByName(s.Table, s.Name); errors.Is(err, syscall.ENOENT) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return k.conn.GetSetElements(s)
}

// refused reads an agent's counter and the destinations that it was refused.
func (k *kernel) refused(agent string) (Refused, error) {
	c := k.agent(agent)
	rules, err := k.conn.GetRules(k.ip, c.refuse)
	if err != nil {
		return Refused{}, err
	}
	if len(rules) == 0 {
		return Refused{}, ErrNoRules
	}
	var out Refused
	for _, r := range rules {
		for _, e := range r.Exprs {
			if counter, ok := e.(*expr.Counter); ok {
				out.Packets += counter.Packets
			}
		}
	}
	elements, err := k.elements(c.refused)
	if err != nil {
		return Refused{}, err
	}
	for _, e := range elements {
		if d, ok := parseDestination(e.Key); ok {
			out.First = append(out.First, d)
		}
	}
	slices.SortFunc(out.First, Destination.compare)
	return out, nil
}
