package doctorcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/diagnose"
)

// ask runs the server's checks against pages by path and returns "status: message" by the check's name.
func ask(t *testing.T, pages map[string]any) map[string]string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, ok := pages[r.URL.Path]
		code, isCode := v.(int)
		if !ok {
			code = http.StatusNotFound
		}
		if isCode || !ok {
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(client.Error{Message: "no"})
			return
		}
		if m, isMap := v.(map[string]any); isMap && m["failing"] != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(v)
	}))
	defer s.Close()
	return found(s.URL)
}

func found(url string) map[string]string {
	c := &console.Console{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}, Now: time.Now, Server: url, Token: "t", Version: "1.2.3", Getenv: func(string) string { return "" }}
	out := map[string]string{}
	for _, r := range diagnose.Run(context.Background(), server(c), time.Minute).Checks {
		out[r.Name] = string(r.Status) + ": " + r.Message
		if (r.Status == diagnose.Warn || r.Status == diagnose.Fail) && r.Cure == "" {
			out[r.Name] += " (no cure)"
		}
	}
	return out
}

func healthy() map[string]any {
	return map[string]any{
		"/health": map[string]any{"status": "ok", "version": "1.2.3"}, "/ready": map[string]any{"ready": true},
		"/api/v1/capabilities":    client.Capabilities{OrchestratorVersion: "1.2.3", ProtocolVersion: 1, MinProtocolVersion: 1},
		"/api/v1/admin/whoami":    client.Identity{Label: "ada", Role: "owner"},
		"/api/v1/whoami":          client.Identity{Label: "ada", Role: "owner"},
		"/api/v1/admin/scalers":   client.ScalerList{Scalers: []client.Scaler{{Name: "local", State: "ready"}}},
		"/api/v1/admin/queue":     client.Queue{},
		"/api/v1/admin/sources":   client.SourceList{Sources: []client.Source{{ID: "s", Name: "shop", Kind: "github", Enabled: true, WebhookURL: "https://ci.example.org/x"}}},
		"/api/v1/admin/sources/s": client.Source{ID: "s", Name: "shop", Kind: "github", Poll: &client.SourcePoll{}},
	}
}

func TestAHealthyServer(t *testing.T) {
	got := ask(t, healthy())
	if len(got) != 9 {
		t.Errorf("%d checks", len(got))
	}
	for name, text := range got {
		if !strings.HasPrefix(text, "pass: ") {
			t.Errorf("%s %s", name, text)
		}
	}
}

// What the server finds of each scaler is a row of its own; a token that may not ask for it sees the list in one.
func TestScalersHaveRows(t *testing.T) {
	pages := healthy()
	pages["/api/v1/admin/diagnose"] = client.Diagnosis{Checks: []client.DiagnosisCheck{
		{Name: "database", Status: "pass", Message: "answers"},
		{Name: "scaler:box", Status: "fail", Message: "not ready, Docker does not answer", Cure: "put that right"},
		{Name: "scaler:local", Status: "pass", Message: "ready, 0/4 agents"},
	}}
	got := ask(t, pages)
	if got["scaler:box"] != "fail: not ready, Docker does not answer" || got["scaler:local"] != "pass: ready, 0/4 agents" || got["scalers"] != "" || len(got) != 10 {
		t.Errorf("%v", got)
	}
	pages["/api/v1/admin/diagnose"] = http.StatusForbidden
	if got := ask(t, pages); !strings.HasPrefix(got["scalers"], "pass: ") || len(got) != 9 {
		t.Errorf("%v", got)
	}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		path string
		page any
		want map[string]string
	}{
		"another program": {"/health", map[string]any{"hello": "world"}, map[string]string{"server": "fail: something answers"}},
		"not ready":       {"/ready", map[string]any{"failing": "database"}, map[string]string{"ready": "fail: the server takes no work in: database"}},
		"a warning":       {"/ready", map[string]any{"ready": true, "warnings": []string{"disk"}}, map[string]string{"ready": "warn: the server takes work in, but warns of: [disk]"}},
		"too new":         {"/api/v1/capabilities", client.Capabilities{ProtocolVersion: 99, MinProtocolVersion: 98}, map[string]string{"protocol": "fail: this client speaks API version 1"}},
		"bad token":       {"/api/v1/whoami", 401, map[string]string{"token": "fail: the server refuses the token"}},
		"may not see":     {"/api/v1/admin/queue", 403, map[string]string{"queue": "skip: the token may not see it"}},
		"back-off": {
			"/api/v1/admin/scalers",
			client.ScalerList{Scalers: []client.Scaler{{Name: "local", NodeName: "n", State: "backing off", StateText: "no such file"}}},
			map[string]string{"scalers": "warn: local on n is backing off: no such file"},
		},
		"stuck": {
			"/api/v1/admin/queue",
			client.Queue{Waiting: 3, OldestMs: 600_000, Items: []client.QueueItem{{JobID: "j", JobName: "test", Repo: "acme/shop", RunNumber: 7, Why: "no agent has gpu"}}},
			map[string]string{"queue": "warn: 3 jobs waiting; test of acme/shop #7 has waited for 10m 00s: no agent has gpu"},
		},
		"polls fail": {
			"/api/v1/admin/sources/s",
			client.Source{ID: "s", Kind: "github", Poll: &client.SourcePoll{Failures: 4, Message: "401"}},
			map[string]string{"sources": "warn: shop could not be asked for new commits 4 times in a row: 401"},
		},
		"local address": {
			"/api/v1/admin/sources",
			client.SourceList{Sources: []client.Source{{ID: "s", Name: "shop", Kind: "gitea", WebhookURL: "http://127.0.0.1:4000/webhook/x"}}},
			map[string]string{"public URL": "warn: shop is told to deliver to http://127.0.0.1:4000/webhook/x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pages := healthy()
			pages[c.path] = c.page
			if strings.HasSuffix(c.path, "whoami") {
				pages["/api/v1/admin/whoami"] = c.page
			}
			got := ask(t, pages)
			for check, want := range c.want {
				if !strings.HasPrefix(got[check], want) || strings.Contains(got[check], "no cure") {
					t.Errorf("%s: %q, want %q", check, got[check], want)
				}
			}
		})
	}
}

func TestNobodyAnswers(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	for name, text := range found(s.URL) {
		want := "skip: " + unreachable
		if name == "server" {
			want = "fail: " + s.URL + " does not answer"
		}
		if !strings.HasPrefix(text, want) {
			t.Errorf("%s %q", name, text)
		}
	}
}

func TestJudgements(t *testing.T) {
	for text, want := range map[string]diagnose.Status{
		"git version 2.39.5": diagnose.Pass, "git version 2.30": diagnose.Pass, "git version 2.29.9": diagnose.Fail, "git version 3.0.1": diagnose.Pass, "hub": diagnose.Warn,
	} {
		if got := judgeGit(text); got.Status != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	for skew, want := range map[time.Duration]diagnose.Status{0: diagnose.Pass, -4 * time.Second: diagnose.Pass, time.Minute: diagnose.Warn, -time.Hour: diagnose.Fail} {
		if got := judgeClock(skew, "server"); got.Status != want {
			t.Errorf("%s: %v", skew, got)
		}
	}
	if judgeOpenFiles(1024, 1024).Status != diagnose.Warn || judgeOpenFiles(1024, 1<<20).Status != diagnose.Pass {
		t.Error("open files")
	}
}

func TestUnit(t *testing.T) {
	low, high := t.TempDir(), t.TempDir()
	put := func(dir, name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	folders := []string{high, low}
	if got := unit(folders); got.Status != diagnose.Skip {
		t.Error(got)
	}
	put(low, "kici.service", "[Service]\nExecStart=/usr/bin/kici server\n")
	if got := unit(folders); got.Status != diagnose.Warn || !strings.Contains(got.Message, "KillMode=control-group") {
		t.Error(got)
	}
	put(low, "kici.service.d/mine.conf", "[Service]\nKillMode=process\n")
	if got := unit(folders); got.Status != diagnose.Pass {
		t.Error(got)
	}
	put(high, "kici.service", "[Service]\nExecStart=/usr/bin/kici server\nKillMode=mixed\n") // hides the other
	if got := unit(folders); got.Status != diagnose.Warn {
		t.Error(got)
	}
}

func TestTheVerdictIsTheExitCode(t *testing.T) {
	for want, f := range map[int]diagnose.Finding{0: diagnose.Passed("ok"), 1: diagnose.Warned("cure it", "hm"), 2: diagnose.Failed("cure it", "bad\x1b[2J")} {
		var out bytes.Buffer
		c := &console.Console{Out: &out, Err: &bytes.Buffer{}, Getenv: func(string) string { return "" }}
		err := finish(c, diagnose.Run(context.Background(), []diagnose.Check{{Name: "x", Ask: func(context.Context) diagnose.Finding { return f }}}, time.Minute))
		if got := console.CodeOf(err); got != want || strings.Contains(out.String(), "\x1b") || want > 0 != strings.Contains(out.String(), "→ cure it") {
			t.Errorf("exit %d, want %d: %q", got, want, out.String())
		}
	}
}
