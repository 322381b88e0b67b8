// Package forgetest tests dialects: recorded exchanges with an API, recorded webhooks, and one fuzz test for all.
package forgetest

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"net/netip"
	"net/textproto"
	"os"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/forge"
	"github.com/kici-go/kici/internal/source/sourcetest"
)

// Token is the token of the clients made here.
const Token = "a-token-that-must-not-be-shown"

// HTTP may dial servers of the test, on the loopback interface.
func HTTP(t testing.TB, o forge.HTTPOptions) *forge.HTTP {
	t.Helper()
	if o.Allowed == nil {
		o.Allowed = func(a netip.AddrPort) bool { return a.Addr().IsLoopback() }
	}
	h := forge.NewHTTP(o)
	t.Cleanup(h.Close)
	return h
}

// API is a client of the API at base, with Token.
func API(t testing.TB, base string) *forge.API {
	t.Helper()
	api, err := HTTP(t, forge.HTTPOptions{}).API(forge.APIConfig{Base: base, Token: Token})
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// Deps are a source's, for tests that reach no webhook.
func Deps(t testing.TB, h *forge.HTTP) forge.Deps {
	t.Helper()
	return forge.Deps{HTTP: h, WebhookURL: func(c source.Config) string {
		return "https://ci.example.com" + source.WebhookPath(c.Kind, c.OrgID, c.Name)
	}}
}

// Request reads a recorded webhook: lines "Name: value", an empty line, the body.
func Request(t testing.TB, file string) source.Request {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := parseRequest(text)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return r
}

func parseRequest(text []byte) (source.Request, error) {
	in := bufio.NewReader(bytes.NewReader(text))
	header, err := textproto.NewReader(in).ReadMIMEHeader()
	if err != nil {
		return source.Request{}, err
	}
	var body bytes.Buffer
	if _, err := in.WriteTo(&body); err != nil {
		return source.Request{}, err
	}
	return source.Request{Header: http.Header(header), Body: bytes.TrimSpace(body.Bytes())}, nil
}

// Mirror is a forge.Mirror in memory: history is a line of commits, the last one first.
type Mirror struct {
	sourcetest.Fake
	History []string
}

// Resolve implements forge.Mirror.
func (m *Mirror) Resolve(ctx context.Context, _ source.Clone, ref string) (source.Commit, error) {
	return m.Fake.Resolve(ctx, ref)
}

// Files implements forge.Mirror.
func (m *Mirror) Files(ctx context.Context, _ source.Clone, sha string) ([]source.File, error) {
	return m.Fake.Files(ctx, sha)
}

// ChangedFiles implements forge.Mirror.
func (m *Mirror) ChangedFiles(ctx context.Context, _ source.Clone, before, after string) ([]string, error) {
	return m.Fake.ChangedFiles(ctx, before, after)
}

// IsAncestor implements forge.Mirror.
func (m *Mirror) IsAncestor(ctx context.Context, c source.Clone, a, b string) (bool, error) {
	at, err := m.MergeBase(ctx, c, a, b)
	return err == nil && at == a, err
}

// MergeBase implements forge.Mirror: of two commits of a line, the older one.
func (m *Mirror) MergeBase(_ context.Context, _ source.Clone, a, b string) (string, error) {
	found := ""
	for _, sha := range m.History {
		if sha == a || sha == b {
			if found != "" || a == b {
				return sha, nil
			}
			found = sha
		}
	}
	return "", source.ErrNotFound
}

// Heads implements forge.Mirror.
func (m *Mirror) Heads(ctx context.Context, _ source.Clone) (map[string]string, error) {
	branch, err := m.Fake.DefaultBranch(ctx)
	if err != nil {
		return nil, err
	}
	head, err := m.Fake.Resolve(ctx, "refs/heads/"+branch)
	return map[string]string{"refs/heads/" + branch: head.SHA}, err
}

// DefaultBranch implements forge.Mirror.
func (m *Mirror) DefaultBranch(ctx context.Context, _ source.Clone) (string, error) {
	return m.Fake.DefaultBranch(ctx)
}

// KnownHosts implements forge.Mirror.
func (m *Mirror) KnownHosts() string { return "" }

// Repository is the repository of the sources made here; bodies of webhooks must be about it.
const Repository = "acme/web"

// Open makes a source of a dialect with an empty mirror. Options are forge.Options as JSON, "" for the least.
func Open(t testing.TB, d forge.Dialect, options string) *forge.Source {
	t.Helper()
	if options == "" {
		options = `{"url":"https://git.example.com","repository":"` + Repository + `","defaultBranch":"main"}`
	}
	m := &Mirror{}
	m.Configure(source.Config{}, "main")
	m.History = []string{m.Commit("refs/heads/main", "first", nil)}
	s, err := forge.New(source.Config{
		ID: "1", OrgID: "default", Kind: d.Kind(), Name: "forge", Repo: Repository, Options: []byte(strings.TrimSpace(options)),
		Secrets: map[string]string{source.SecretWebhook: secret, source.SecretToken: Token},
	}, d, m, Deps(t, HTTP(t, forge.HTTPOptions{})))
	if err != nil {
		t.Fatal(err)
	}
	return s
}
