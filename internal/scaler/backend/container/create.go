package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/container/engineapi"
)

// Times of a start.
const (
	undoTimeout  = 20 * time.Second // for removing what a failed start left
	tokenTimeout = 30 * time.Second // for the agent to say that it has its token
)

// Create implements backend.Backend. Each step can be the last one of this process: what was made has our labels, so that List finds it,
// and an agent without its token leaves by itself and has done nothing.
func (b *Backend) Create(ctx context.Context, s backend.Spec) (_ backend.Instance, err error) {
	defer func() { err = onDisk(err, b.volume()) }()
	if !agentID().MatchString(s.AgentID) {
		return backend.Instance{}, fmt.Errorf("%w: agent id %q", backend.ErrRefused, s.AgentID)
	}
	set, ok := b.sets[s.LabelSet]
	if !ok {
		return backend.Instance{}, fmt.Errorf("%w: scaler %s has no label set [%s]", backend.ErrRefused, b.entry.Name, s.LabelSet)
	}
	unlock, err := b.lock(ctx, b.locks, s.AgentID)
	if err != nil {
		return backend.Instance{}, err
	}
	defer unlock()
	if inst, running, err := b.existing(ctx, s.AgentID); err != nil || running {
		return inst, err
	}
	id, err := b.startIn(ctx, s, set)
	if errors.Is(err, errImageGone) { // it was there a moment ago
		id, err = b.startIn(ctx, s, set)
	}
	if err != nil {
		return backend.Instance{}, err
	}
	return b.running(s.AgentID, id), nil
}

// startIn sees to the image, and starts the agent in it.
func (b *Backend) startIn(ctx context.Context, s backend.Spec, set backend.Set) (id string, err error) {
	want := wantedOf(s, set)
	if want.ref == "" { // BM-2
		return "", fmt.Errorf("%w: label set [%s] runs only jobs that name an image of their own", backend.ErrRefused, set.Key)
	}
	want.marked = !boundsOf(b.entry.Options).off()
	img, err := b.haveImage(ctx, want)
	if err != nil {
		return "", err
	}
	t := start{spec: s, set: set, image: want.ref, otherUser: otherUser(img), volumes: volumesOf(img, set)}
	if id, err = b.start(ctx, t); !errors.Is(err, errNoNetwork) {
		return id, err
	}
	b.log.Warn("the network of agents is gone; it is made again") // somebody has removed it
	if err = b.fence(ctx); err != nil {
		return "", fmt.Errorf("%w: %w", backend.ErrNotReady, err)
	}
	return b.start(ctx, t)
}

// errImageGone says that somebody, perhaps another scaler, has removed an image that was there a moment before.
var errImageGone = errors.New("the image has gone meanwhile")

func (b *Backend) running(agent, id string) backend.Instance {
	name := containerName(agent)
	return backend.Instance{
		AgentID: agent, Launch: record{name, id}.encode(), Running: true, Detail: "container " + name, Holds: []backend.Resource{backend.Container},
	}
}

// existing returns the agent's container when it runs, and removes what an interrupted start left of it.
func (b *Backend) existing(ctx context.Context, agent string) (inst backend.Instance, running bool, err error) {
	in, ours, err := b.inspect(ctx, agent)
	switch {
	case errors.Is(err, backend.ErrNotFound):
		return inst, false, nil
	case err != nil:
		return inst, false, hostError(err, backend.ErrInfra)
	case !ours:
		return inst, false, fmt.Errorf("%w: there is a container %s that is not this scaler's: remove or rename it", backend.ErrInfra, containerName(agent))
	case alive(in.State.Status):
		return b.running(agent, in.ID), true, nil
	}
	if err := b.remove(ctx, agent, in.ID); err != nil {
		return inst, false, hostError(fmt.Errorf("remove an interrupted start: %w", err), backend.ErrInfra)
	}
	return inst, false, nil
}

// start is one launch on its way.
type start struct {
	spec      backend.Spec
	set       backend.Set
	image     string
	otherUser bool // the image's processes are not root's
	volumes   []string
}

// start makes a container and brings its agent to life. An engine on this machine that turns out to have other files is given copies.
func (b *Backend) start(ctx context.Context, t start) (id string, err error) {
	l, err := b.launch(t)
	if err != nil {
		return "", err
	}
	if err := b.makeVolumes(ctx, t.spec.AgentID, len(t.volumes)); err != nil {
		b.undo(t.spec.AgentID)
		return "", hostError(err, backend.ErrInfra)
	}
	made, err := b.api.Create(ctx, l.options())
	if err != nil && (invisible(err, l.program) || invisible(err, l.socket)) {
		b.log.Warn("the engine has other files than this server: agents' programs are copied, and agents need orchestratorUrl", "err", err)
		b.mu.Lock()
		b.copied = true
		b.mu.Unlock()
		if l, err = b.launch(t); err != nil {
			return "", err
		}
		made, err = b.api.Create(ctx, l.options())
	}
	if err != nil {
		b.undo(t.spec.AgentID) // a cancelled call may have been carried out
		return "", createError(err, l)
	}
	if err := b.enliven(ctx, made, l, t.otherUser); err != nil {
		b.undo(t.spec.AgentID)
		return "", err
	}
	return made, nil
}

// errNoNetwork says that the network of agents is not there.
var errNoNetwork = fmt.Errorf("%w: the network of agents is gone", backend.ErrNotReady)

// noNetwork reports whether an engine says that a container's network is not there, which each does in its own way.
func noNetwork(err error, l launch) bool {
	text := err.Error()
	return l.network != "" && strings.Contains(text, "network") && strings.Contains(text, "not found")
}

// createError explains what an engine says of a container that it does not make.
func createError(err error, l launch) error {
	if engineapi.IsStatus(err, http.StatusNotFound) && noImage(err) {
		return fmt.Errorf("%w: %w: %s", backend.ErrInfra, errImageGone, sentence(err))
	}
	if noNetwork(err, l) {
		return fmt.Errorf("%w: %s", errNoNetwork, sentence(err))
	}
	if invisible(err, l.program) {
		return fmt.Errorf("%w: %s", backend.ErrRefused, sentence(err))
	}
	return hostError(err, backend.ErrInfra)
}

// launch computes a container's options.
func (b *Backend) launch(t start) (launch, error) {
	b.mu.Lock()
	l := launch{
		spec: t.spec, set: t.set, volumes: t.volumes, scaler: b.scaler, host: b.host, engine: b.at, podman: b.podman, image: t.image, program: b.binary,
		hosts: b.entry.Options.Strings(keyExtraHosts), url: t.spec.URL,
	}
	copied, network := b.copied, b.network
	b.mu.Unlock()
	switch {
	case copied:
		l.program = ""
	case t.spec.Socket != "":
		l.url, l.socket = socketURL(t.spec.Socket), filepath.Dir(t.spec.Socket)
	}
	if l.socket == "" && loopback(l.url) {
		return l, fmt.Errorf("%w: agents in containers of %s cannot reach the server at %s: set orchestratorUrl of scaler %s to an address that they can",
			backend.ErrRefused, b.at, l.url, b.scaler)
	}
	if l.podman && strings.Contains(l.program+l.socket, ",") {
		return l, fmt.Errorf("%w: Podman cannot mount paths that have a comma (%s, %s): move the data directory, or kici, elsewhere", backend.ErrRefused, l.program, l.socket)
	}
	if isolated(b.entry) {
		if network.Name == "" {
			return l, fmt.Errorf("%w: the network of agents is not prepared", backend.ErrNotReady)
		}
		l.network = networkName
		l.rules = rulesOf(t.spec, t.set.Network, l.socket != "").encode()
	}
	return l, nil
}

// loopback reports whether a URL means the machine itself, which inside a container is the container.
func loopback(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// enliven starts a container, fences it in, and only then gives its agent the token.
func (b *Backend) enliven(ctx context.Context, id string, l launch, otherUser bool) error {
	if l.program == "" || otherUser {
		if err := b.furnish(ctx, id, l); err != nil {
			return hostError(fmt.Errorf("copy the agent into the container: %w", err), backend.ErrInfra)
		}
	}
	stream, err := b.api.Attach(ctx, id)
	if err != nil {
		return startError(fmt.Errorf("attach to the container: %w", err), l) // Podman starts half of it here
	}
	defer func() { _ = stream.Conn.Close() }() // the agent leaves when its input ends without a token
	if err := b.api.Start(ctx, id); err != nil {
		return startError(err, l)
	}
	if l.rules != nil {
		if err := b.confine(ctx, id, l); err != nil {
			return b.orDied(ctx, l.spec.AgentID, err)
		}
	}
	if err := give(ctx, stream, l.spec.Token); err != nil {
		return b.orDied(ctx, l.spec.AgentID, fmt.Errorf("%w: hand over the token: %w", backend.ErrInfra, err))
	}
	return nil
}

// startError explains a container that did not start. Most refusals of a runtime would come again.
func startError(err error, l launch) error {
	if engineapi.IsStatus(err, http.StatusNotFound) && noImage(err) {
		return fmt.Errorf("%w: %w: %s", backend.ErrInfra, errImageGone, sentence(err))
	}
	if noNetwork(err, l) {
		return fmt.Errorf("%w: %s", errNoNetwork, sentence(err))
	}
	return hostError(err, backend.ErrRefused)
}

// give hands the token over, and waits for the agent to say something: that it has it is the first thing that it says. Whether an engine
// has passed on what it was sent cannot be known otherwise.
func give(ctx context.Context, stream *engineapi.Stream, token string) error {
	stop := context.AfterFunc(ctx, func() { _ = stream.Conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = stream.Conn.SetDeadline(time.Now().Add(tokenTimeout))
	_, err := io.WriteString(stream.Conn, token+"\n")
	if err == nil {
		_, err = stream.Reader.ReadByte()
	}
	if errors.Is(err, io.EOF) {
		return errors.New("its output ended")
	}
	return err
}

// orDied prefers to say how the agent died, when that is why it could not be started.
func (b *Backend) orDied(ctx context.Context, agent string, err error) error {
	in, _, ierr := b.inspect(ctx, agent)
	if ierr != nil || in.State == nil || alive(in.State.Status) || in.State.Status == stateCreated {
		return err
	}
	return &backend.Died{Detail: b.fate(in), Tail: b.tail(ctx, in.ID)}
}

// undo removes what a failed start left; what it cannot remove is found by List.
func (b *Backend) undo(agent string) {
	ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	in, ours, err := b.inspect(ctx, agent)
	switch {
	case err == nil && ours:
		err = b.remove(ctx, agent, in.ID)
	case errors.Is(err, backend.ErrNotFound):
		_, err = b.clear(ctx, agent)
	}
	if err != nil && !errors.Is(err, backend.ErrNotFound) {
		b.log.Warn("undo a failed start", "agent_id", agent, "err", err)
	}
}
