package forge

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/kici-go/kici/internal/source"
)

// HTTPOptions are the bounds of requests to forges. The zero value of a field is its default.
type HTTPOptions struct {
	Connect time.Duration               // of one connection; 5 s
	Timeout time.Duration               // of a whole request with its redirects; 20 s
	Now     func() time.Time            // time.Now
	Allowed func(a netip.AddrPort) bool // for tests: addresses that may be dialled although they are private; none
}

const (
	connectTimeout = 5 * time.Second
	requestTimeout = 20 * time.Second
	idleTimeout    = 60 * time.Second
	maxRedirects   = 5
)

// HTTP is what all sources of a server share: connections, and the memory of which forge asked for a pause. It outlives the
// sources, which are opened anew at every change.
type HTTP struct {
	o               HTTPOptions
	public, private *http.Transport

	mu     sync.Mutex
	pauses map[string]*source.RetryAt // by API.key
}

// NewHTTP returns a pool of connections; Close it.
func NewHTTP(o HTTPOptions) *HTTP {
	if o.Connect == 0 {
		o.Connect = connectTimeout
	}
	if o.Timeout == 0 {
		o.Timeout = requestTimeout
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	h := &HTTP{o: o, pauses: map[string]*source.RetryAt{}}
	h.public, h.private = h.transport(false), h.transport(true)
	return h
}

// Close ends idle connections.
func (h *HTTP) Close() {
	h.public.CloseIdleConnections()
	h.private.CloseIdleConnections()
}

// API makes a client.
func (h *HTTP) API(c APIConfig) (*API, error) {
	base, err := url.Parse(c.Base)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("apiUrl %q is not an address", c.Base)
	}
	t := h.public
	if c.AllowPrivate {
		t = h.private
	}
	sum := sha256.Sum256([]byte(c.Base + "\x00" + c.Token))
	a := &API{h: h, c: c, base: base, key: hex.EncodeToString(sum[:16])}
	a.client = &http.Client{Transport: t, CheckRedirect: a.redirect}
	return a, nil
}

// transport uses no proxy of the environment: what a proxy dials cannot be checked.
func (h *HTTP) transport(allowPrivate bool) *http.Transport {
	d := &net.Dialer{Timeout: h.o.Connect, Control: func(_, address string, _ syscall.RawConn) error {
		return h.dialable(address, allowPrivate)
	}}
	return &http.Transport{
		DialContext: d.DialContext, TLSHandshakeTimeout: h.o.Connect, IdleConnTimeout: idleTimeout, MaxIdleConnsPerHost: 4,
		MaxResponseHeaderBytes: 64 << 10, ForceAttemptHTTP2: true,
	}
}

var (
	errPrivate  = errors.New("refused to connect to an address of a private network")
	errRedirect = errors.New("refused a redirect")
)

// dialable judges an address after its name was resolved, so that no name can lead inside.
func (h *HTTP) dialable(address string, allowPrivate bool) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q", errPrivate, address)
	}
	addr := at.Addr().Unmap().WithZone("")
	switch {
	case h.o.Allowed != nil && h.o.Allowed(netip.AddrPortFrom(addr, at.Port())), public(addr):
		return nil
	case allowPrivate && ownNetwork(addr):
		return nil
	case ownNetwork(addr):
		return fmt.Errorf("%w (%s): if the forge lives there, set allowPrivate (--allow-private) on its source", errPrivate, addr)
	}
	return fmt.Errorf("%w (%s)", errPrivate, addr)
}

// redirect follows within bounds. The token never leaves for another origin, and nothing but a question does.
func (a *API) redirect(req *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("%w: more than %d: is apiUrl right?", errRedirect, maxRedirects)
	case req.Method != first.Method:
		return fmt.Errorf("%w of a %s to %s: is apiUrl right?", errRedirect, first.Method, req.URL.Host)
	}
	for _, r := range append(via, req) {
		if sameOrigin(r.URL, a.base) {
			continue
		}
		if first.Method != http.MethodGet {
			return fmt.Errorf("%w of a %s to another host, %s: is apiUrl right?", errRedirect, first.Method, req.URL.Host)
		}
		req.Header.Del("Authorization")
	}
	return nil
}

func sameOrigin(a, b *url.URL) bool { return a.Scheme == b.Scheme && a.Host == b.Host }

// paused returns the error of a forge that asked for a pause which is not over.
func (h *HTTP) paused(key string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.pauses[key]; p != nil && h.o.Now().Before(p.At) {
		return p
	}
	return nil
}

// pause remembers what a forge asked for, and forgets what is over.
func (h *HTTP) pause(key string, p *source.RetryAt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.o.Now()
	for k, old := range h.pauses {
		if !now.Before(old.At) {
			delete(h.pauses, k)
		}
	}
	h.pauses[key] = p
}
