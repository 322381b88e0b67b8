package sourcecmd

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// server answers like a kici server with one source, and remembers what it was asked.
type server struct {
	mu      sync.Mutex
	seen    []string
	source  client.Source
	answers map[string]any // by method and last part of the path
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	path := strings.TrimPrefix(r.URL.Path, "/api/v1/admin")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, r.Method+" "+path+" "+string(body))
	w.Header().Set("Content-Type", "application/json")
	answer, ok := s.answers[r.Method+" "+path]
	switch {
	case strings.HasSuffix(path, "/capabilities"):
		answer = client.Capabilities{ProtocolVersion: client.ProtocolVersion, MinProtocolVersion: client.MinProtocolVersion}
	case !ok:
		answer = s.source
	}
	if e, ok := answer.(client.Error); ok {
		w.WriteHeader(http.StatusConflict)
		answer = e
	}
	_ = json.NewEncoder(w).Encode(answer)
}

type result struct {
	out, err string
	code     error
}

// kici runs a command against the server.
func (s *server) kici(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	ts := httptest.NewServer(s)
	defer ts.Close()
	var out, errs bytes.Buffer
	c := console.New()
	c.Server, c.Token, c.Output = ts.URL, "good", "table"
	c.In, c.Out, c.Err, c.InTerminal = strings.NewReader(stdin), &out, &errs, false
	c.Now = func() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }
	cmd := New(c)
	cmd.SetArgs(args)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err := cmd.ExecuteContext(t.Context())
	return result{out.String(), errs.String(), err}
}

func (s *server) got(part string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.seen, func(line string) bool { return strings.Contains(line, part) })
}

func forgeSource(kind, options string) client.Source {
	return client.Source{ID: "id-1", Kind: kind, Name: "shop", Repo: "acme/shop", Enabled: true, WebhookURL: "https://ci.example.com/webhook/default/generic/shop", Config: json.RawMessage(options)}
}

func TestAddForgeSendsOptionsAndCredentialsAndSaysWhatToClick(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("-----BEGIN OPENSSH PRIVATE KEY-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &server{answers: map[string]any{"POST /sources": client.AddedSource{
		Source: forgeSource("gitea", `{"url":"https://git.example.com","repository":"acme/shop"}`), Secret: "made", Warnings: []string{"no token"},
	}}}
	r := s.kici(t, "tok\n", "add", "gitea", "acme/Shop", "--url", "https://git.example.com", "--token-from-stdin", "--ssh-key-file", key, "--forks", "run", "--allow-private")
	if r.code != nil {
		t.Fatal(r)
	}
	for _, part := range []string{
		`"kind":"gitea"`, `"name":"shop"`, `"options":{"allowPrivate":true,"forks":"run","repository":"acme/Shop","url":"https://git.example.com"}`,
		`"token":"tok"`, `"sshKey":"-----BEGIN`,
	} {
		if !s.got(part) {
			t.Errorf("%s was not sent: %q", part, s.seen)
		}
	}
	for _, part := range []string{"no token", "https://git.example.com/acme/shop/settings/hooks/gitea/new", "https://ci.example.com/webhook/default/generic/shop", "Secret: made", "install-hook shop"} {
		if !strings.Contains(r.err, part) {
			t.Errorf("%q is not in %q", part, r.err)
		}
	}
	if strings.Contains(r.out, "made") {
		t.Error("the secret is in the output that scripts read:", r.out)
	}
}

func TestAddForgeNeedsOneRepository(t *testing.T) {
	s := &server{}
	for _, args := range [][]string{{"add", "github"}, {"add", "github", "a/b", "--repo", "c/d"}} {
		if r := s.kici(t, "", args...); console.CodeOf(r.code) != console.ExitUsage {
			t.Errorf("%v: %v", args, r.code)
		}
	}
}

func TestHookPages(t *testing.T) {
	for kind, want := range map[string]string{
		"github": "https://github.com/acme/shop/settings/hooks/new",
		"gitlab": "https://gitlab.com/acme/shop/-/hooks",
	} {
		if got := hookPage(forgeSource(kind, `{}`)); got != want {
			t.Errorf("%s: %s", kind, got)
		}
	}
	if got := hookPage(forgeSource("gitea", `{"url":"https://git.example.com/sub/"}`)); got != "https://git.example.com/sub/acme/shop/settings/hooks/gitea/new" {
		t.Error(got)
	}
}

func TestInstallHookOnAForge(t *testing.T) {
	s := &server{source: forgeSource("github", `{}`), answers: map[string]any{"POST /sources/id-1/install-hook": client.InstalledHook{WebhookURL: "https://ci/x"}}}
	if r := s.kici(t, "", "install-hook", "shop"); r.code != nil || r.out != "https://ci/x\n" || !strings.Contains(r.err, "GitHub now delivers") {
		t.Error(r)
	}
	s.answers["POST /sources/id-1/install-hook"] = client.Error{Message: "the token may not change webhooks"}
	if r := s.kici(t, "", "install-hook", "shop"); console.CodeOf(r.code) != console.ExitFailed || !strings.Contains(r.err, "may not change webhooks") || !strings.Contains(r.err, "settings/hooks/new") {
		t.Error(r)
	}
}

func TestUpdateKeepsWhatIsNotNamed(t *testing.T) {
	s := &server{source: forgeSource("gitea", `{"url":"https://git.example.com","repository":"acme/shop","statuses":"off","forks":"run"}`)}
	if r := s.kici(t, "", "update", "shop", "--statuses", "workflows", "--forks", ""); r.code != nil {
		t.Fatal(r)
	}
	if want := `PUT /sources/id-1 {"options":{"repository":"acme/shop","statuses":"workflows","url":"https://git.example.com"}}`; !s.got(want) {
		t.Errorf("%q", s.seen)
	}
	s.source.Kind = "local"
	if r := s.kici(t, "", "update", "shop", "--statuses", "off"); r.code == nil {
		t.Error("a local source was updated")
	}
}

func TestCredentialVerbs(t *testing.T) {
	s := &server{source: forgeSource("gitea", `{}`), answers: map[string]any{
		"POST /sources/shop/rotate-secret": client.RotatedSecret{Secret: "fresh", WebhookURL: "https://ci/x", InstallError: "the token was refused"},
	}}
	if r := s.kici(t, "secret-token\n", "set-token", "shop"); r.code != nil || !s.got(`PUT /sources/shop/token {"value":"secret-token"}`) {
		t.Error(r, s.seen)
	}
	if r := s.kici(t, "-----BEGIN X\n", "set-ssh-key", "shop"); r.code != nil || !s.got("PUT /sources/shop/ssh-key") {
		t.Error(r, s.seen)
	}
	r := s.kici(t, "", "rotate-secret", "shop", "--install")
	if console.CodeOf(r.code) != console.ExitNotClean || r.out != "fresh\n" || !strings.Contains(r.code.Error(), "the token was refused") {
		t.Error(r)
	}
	if r := s.kici(t, "", "drop-old-secret", "shop"); r.code != nil || !s.got("DELETE /sources/shop/old-secret") {
		t.Error(r, s.seen)
	}
}

func TestRedeliverReports(t *testing.T) {
	s := &server{answers: map[string]any{"POST /sources/shop/redeliver": client.Redelivered{
		Matched: 3, Redelivered: 2, Failed: []client.FailedRedelivery{{GUID: "g-1", Event: "push", Error: "gone"}},
	}}}
	r := s.kici(t, "", "redeliver", "shop", "--since", "6h", "--dry-run")
	if console.CodeOf(r.code) != console.ExitNotClean || !strings.Contains(r.out, "g-1") {
		t.Error(r)
	}
	if !s.got(`{"since":"2026-05-04T06:00:00Z","until":"2026-05-04T12:00:00Z","dryRun":true}`) {
		t.Errorf("%q", s.seen)
	}
	if r := s.kici(t, "", "redeliver", "shop", "--since", "yesterday"); console.CodeOf(r.code) != console.ExitUsage {
		t.Error(r)
	}
}

func TestShowSaysWhatWasLastHeard(t *testing.T) {
	at := client.TimeOf(time.Date(2026, 5, 4, 11, 0, 0, 0, time.UTC).UnixMilli())
	src := forgeSource("gitea", `{}`)
	src.Secrets = []client.SourceSecret{{Key: "webhook_old", UpdatedAt: at, EndsAt: &at}}
	src.LastDelivery = &client.SourceDelivery{ID: "d-1", Event: "push", Status: "processed", ReceivedAt: at}
	src.Poll = &client.SourcePoll{LastAt: &at, NextAt: &at, Failures: 2, Message: "the credential was refused"}
	r := (&server{source: src}).kici(t, "", "show", "shop")
	for _, part := range []string{"accepted until 2026-05-04 11:00:00", "push processed (d-1)", "2 failures since", "the credential was refused"} {
		if !strings.Contains(r.out, part) {
			t.Errorf("%q is not in %q", part, r.out)
		}
	}
}
