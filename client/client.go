package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config is what a Client needs.
type Config struct {
	URL       string // http://127.0.0.1:4000, with the base path if there is one
	Token     string
	Org       string // to act in another organisation than the token's; only who operates the cluster may
	UserAgent string
	HTTP      *http.Client // nil is a client with sensible time limits
}

// Client speaks to one server. It is safe for concurrent use. Reads are repeated after a broken connection or a 502, 503 or
// 504; writes never are, except that Start, Rerun and Cancel carry an idempotency key.
type Client struct {
	base  string
	token string
	org   string // that it acts in, "" is the token's
	agent string
	http  *http.Client
}

// New returns a client. It does not connect.
func New(c Config) (*Client, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("server address %q is not like http://127.0.0.1:4000", c.URL)
	}
	h := c.HTTP
	if h == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.ResponseHeaderTimeout = 60 * time.Second
		h = &http.Client{Transport: t}
	}
	agent := c.UserAgent
	if agent == "" {
		agent = "kici-client"
	}
	return &Client{base: strings.TrimRight(u.String(), "/"), token: c.Token, org: c.Org, agent: agent, http: h}, nil
}

// URL is the server's address.
func (c *Client) URL() string { return c.base }

// StatusError is an answer other than success, with the server's sentence.
type StatusError struct {
	Status    int
	Message   string
	Details   []string
	RequestID string
}

// Error is the server's sentence and its details.
func (e *StatusError) Error() string {
	if len(e.Details) == 0 {
		return e.Message
	}
	return e.Message + ": " + strings.Join(e.Details, "; ")
}

// IsStatus reports whether err is an answer with that HTTP status.
func IsStatus(err error, status int) bool {
	var se *StatusError
	return errors.As(err, &se) && se.Status == status
}

// ConnectError says that the server could not be reached at all.
type ConnectError struct {
	URL string
	Err error
}

// Error names the address.
func (e *ConnectError) Error() string {
	return fmt.Sprintf("cannot reach the server at %s: %v", e.URL, e.Err)
}

// Unwrap gives the cause.
func (e *ConnectError) Unwrap() error { return e.Err }

// ProtocolError says that client and server are too far apart (CLI-9).
type ProtocolError struct {
	Client, Server, ServerMin int
	Version                   string
}

// Error names both versions.
func (e *ProtocolError) Error() string {
	return fmt.Sprintf("this client speaks API version %d; the server (%s) speaks %d and accepts %d or newer: use a kici of the server's version",
		e.Client, e.Version, e.Server, e.ServerMin)
}

// call is one request.
type call struct {
	method, path string
	query        url.Values
	body         any
	idempotency  string
}

const (
	attempts    = 4
	maxResponse = 256 << 20
)

// do sends the call and decodes the answer into out.
func (c *Client) do(ctx context.Context, k call, out any) error {
	tries := 1
	if k.method == http.MethodGet {
		tries = attempts
	}
	var err error
	for i := range tries {
		if i > 0 {
			if sleep(ctx, backoff(i)) != nil {
				return err
			}
		}
		if err = c.once(ctx, k, out); !temporary(err) {
			return err
		}
	}
	return err
}

func (c *Client) once(ctx context.Context, k call, out any) error {
	resp, err := c.send(ctx, k, "application/json")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if err != nil {
		return &ConnectError{c.base, err}
	}
	if out == nil || len(b) == 0 {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%s answered something that is not the API's JSON; is it a kici server? (%w)", c.base, err)
	}
	return nil
}

// send returns a successful response, whose body the caller closes.
func (c *Client) send(ctx context.Context, k call, accept string) (*http.Response, error) {
	var body io.Reader
	if k.body != nil {
		b, err := json.Marshal(k.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	u := c.base + k.path
	if len(k.query) > 0 {
		u += "?" + k.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, k.method, u, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", c.agent)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.org != "" {
		req.Header.Set("X-Kici-Org", c.org)
	}
	if k.idempotency != "" {
		req.Header.Set("Idempotency-Key", k.idempotency)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return nil, &ConnectError{c.base, err}
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		return nil, statusError(resp)
	}
	return resp, nil
}

func statusError(resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var e Error
	_ = json.Unmarshal(b, &e)
	if e.Message == "" {
		e.Message = fmt.Sprintf("the server answered %s", resp.Status)
	}
	return &StatusError{Status: resp.StatusCode, Message: e.Message, Details: e.Details, RequestID: resp.Header.Get("X-Request-ID")}
}

func temporary(err error) bool {
	var ce *ConnectError
	if errors.As(err, &ce) {
		return !refused(ce.Err) // nobody listens: say so at once
	}
	return IsStatus(err, http.StatusBadGateway) || IsStatus(err, http.StatusServiceUnavailable) || IsStatus(err, http.StatusGatewayTimeout)
}

// backoff doubles from 200 ms, with jitter.
func backoff(attempt int) time.Duration {
	d := 200 * time.Millisecond << min(attempt-1, 5)
	return d/2 + rand.N(d)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// CheckProtocol asks the server which versions it speaks and refuses one that is too far away.
func (c *Client) CheckProtocol(ctx context.Context) (Capabilities, error) {
	var caps Capabilities
	if err := c.do(ctx, call{method: http.MethodGet, path: "/api/v1/capabilities"}, &caps); err != nil {
		return caps, err
	}
	if caps.MinProtocolVersion > ProtocolVersion || caps.ProtocolVersion < MinProtocolVersion {
		return caps, &ProtocolError{ProtocolVersion, caps.ProtocolVersion, caps.MinProtocolVersion, caps.OrchestratorVersion}
	}
	return caps, nil
}
