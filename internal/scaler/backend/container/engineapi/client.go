package engineapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// newest is the newest version of the API that this package was written for. An older engine is spoken to in its own.
const newest = 51 // 1.51

// Bounds of an answer.
const (
	maxAnswer = 16 << 20
	maxError  = 4 << 10
)

// Client is a connection to one engine. It is safe for concurrent use. Close it.
type Client struct {
	address string // of the engine, for people
	host    string // in requests
	dial    func(context.Context) (net.Conn, error)
	http    *http.Client

	mu      sync.Mutex
	version string // "/v1.41", once it is agreed
}

// New makes a client of the engine at unix:///path, tcp://host:port, http://… or https://…. certificates is a folder with ca.pem, cert.pem
// and key.pem for TLS, "" for none. Nothing is asked yet.
func New(address, certificates string) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("address of the engine: %w", err)
	}
	c := &Client{address: address, host: u.Host}
	network, at := "tcp", u.Host
	if u.Scheme == "unix" {
		network, at, c.host = "unix", u.Path, "engine"
	}
	var config *tls.Config
	if certificates != "" || u.Scheme == "https" {
		if config, err = tlsConfig(u.Hostname(), certificates); err != nil {
			return nil, err
		}
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	c.dial = func(ctx context.Context) (net.Conn, error) {
		if config != nil {
			return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, at)
		}
		return dialer.DialContext(ctx, network, at)
	}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) }, MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute,
	}}
	return c, nil
}

func tlsConfig(host, folder string) (*tls.Config, error) {
	config := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if folder == "" {
		return config, nil
	}
	ca, err := os.ReadFile(filepath.Join(folder, "ca.pem"))
	if err != nil {
		return nil, fmt.Errorf("certificates of the engine: %w", err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("certificates of the engine: %s holds none", filepath.Join(folder, "ca.pem"))
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem"))
	if err != nil {
		return nil, fmt.Errorf("certificates of the engine: %w", err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

// Close lets idle connections go.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Error is what an engine answers instead of what was asked for.
type Error struct {
	Status  int // of HTTP
	Message string
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// IsStatus reports whether an engine answered with one of these.
func IsStatus(err error, status ...int) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	for _, s := range status {
		if e.Status == s {
			return true
		}
	}
	return false
}

// IsAway reports whether the engine could not be spoken to at all.
func IsAway(err error) bool {
	var e *Error
	var u *url.Error
	return !errors.As(err, &e) && errors.As(err, &u)
}

// request is one call.
type request struct {
	method, path string
	query        url.Values
	body         io.Reader // nil for none
	kind         string    // of the body
	header       map[string]string
}

// agree finds out which version of the API both sides know.
func (c *Client) agree(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version != "" {
		return c.version, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.host+"/_ping", http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return "", c.away(err)
	}
	_ = resp.Body.Close()
	c.version = versionFor(resp.Header.Get("Api-Version"))
	return c.version, nil
}

// versionFor is the prefix of paths for an engine whose newest version is theirs.
func versionFor(theirs string) string {
	minor, err := strconv.Atoi(strings.TrimPrefix(theirs, "1."))
	if err != nil || minor > newest {
		minor = newest
	}
	return "/v1." + strconv.Itoa(minor)
}

// away says who was asked.
func (c *Client) away(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return &url.Error{Op: u.Op, URL: c.address, Err: u.Err}
	}
	return err
}

func (c *Client) build(ctx context.Context, r request) (*http.Request, error) {
	version, err := c.agree(ctx)
	if err != nil {
		return nil, err
	}
	body := r.body
	if body == nil {
		body = http.NoBody
	}
	req, err := http.NewRequestWithContext(ctx, r.method, "http://"+c.host+version+r.path, body)
	if err != nil {
		return nil, err
	}
	req.URL.RawQuery = r.query.Encode()
	if r.kind != "" {
		req.Header.Set("Content-Type", r.kind)
	}
	for k, v := range r.header {
		req.Header.Set(k, v)
	}
	return req, nil
}

// do calls, and returns an answer that is no error. Close its body.
func (c *Client) do(ctx context.Context, r request) (*http.Response, error) {
	req, err := c.build(ctx, r)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.away(err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, answerError(resp)
}

func answerError(resp *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, maxError))
	var said struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(data, &said) != nil || said.Message == "" {
		said.Message = strings.TrimSpace(string(data))
	}
	if said.Message == "" {
		said.Message = "the engine answered " + resp.Status
	}
	return &Error{resp.StatusCode, said.Message}
}

// call calls and decodes the answer into out, unless that is nil.
func (c *Client) call(ctx context.Context, r request, out any) error {
	resp, err := c.do(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer := io.LimitReader(resp.Body, maxAnswer)
	if out == nil {
		_, err = io.Copy(io.Discard, answer)
		return err
	}
	if err := json.NewDecoder(answer).Decode(out); err != nil {
		return fmt.Errorf("answer of the engine to %s: %w", r.path, err)
	}
	_, _ = io.Copy(io.Discard, answer) // so that the connection can be used again
	return nil
}

func (c *Client) get(ctx context.Context, path string, query url.Values, out any) error {
	return c.call(ctx, request{method: http.MethodGet, path: path, query: query}, out)
}

// post sends a JSON body.
func (c *Client) post(ctx context.Context, path string, query url.Values, in, out any) error {
	r := request{method: http.MethodPost, path: path, query: query}
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		r.body, r.kind = bytes.NewReader(data), "application/json"
	}
	return c.call(ctx, r, out)
}

// Filters are what a listing is narrowed by.
type Filters map[string][]string

func (f Filters) values() url.Values {
	data, _ := json.Marshal(f) // lists of texts always encode
	return url.Values{"filters": {string(data)}}
}
