package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"

	"github.com/kici-go/kici/internal/store"
)

// A source's credentials go in and never come out; each change is recorded under its own action.
func TestSourceCredentials(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	r.addSource("src", "shop")
	for _, x := range []struct{ method, path, body, did, action string }{
		{"PUT", "/sources/shop/token", `{"value":"tok-1"}`, "token tok-1", "source.token.set"},
		{"PUT", "/sources/shop/ssh-key", `{"value":"-----BEGIN"}`, "key -----BEGIN", "source.ssh_key.set"},
		{"PUT", "/sources/shop", `{"options":{"repository":"a/b"}}`, `update  {"repository":"a/b"}`, "source.update"},
		{"POST", "/sources/shop/redeliver", `{"since":"2026-01-01T00:00:00Z","until":"2026-01-02T00:00:00Z","dryRun":true}`, "redeliver true", "source.redeliver"},
		{"POST", "/sources/shop/install-hook", "", "", "source.hook.install"},
		{"DELETE", "/sources/shop/old-secret", "", "", "source.secret.drop"},
		{"POST", "/sources/shop/rotate-secret", `{"install":true}`, "", "source.secret.rotate"},
	} {
		r.intake.did = nil
		status, text := r.do(x.method, admin+x.path, "owner", x.body)
		if status != http.StatusOK || strings.Contains(text, "tok-1") {
			t.Errorf("%s %s: %d %s", x.method, x.path, status, text)
		}
		if got := strings.Join(r.intake.did, ";"); got != x.did {
			t.Errorf("%s %s did %q, want %q", x.method, x.path, got, x.did)
		}
		if e := r.auth.last(); e.Action != x.action || e.Target != "shop" {
			t.Errorf("%s %s is recorded as %+v", x.method, x.path, e)
		}
		if status, _ := r.do(x.method, admin+x.path, "auditor", x.body); status != http.StatusForbidden {
			t.Errorf("an auditor may %s %s: %d", x.method, x.path, status)
		}
	}
}

// The secret is new even when the forge could not be told.
func TestRotateSaysWhatTheForgeSaid(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	r.addSource("src", "shop")
	r.intake.hookErr = errors.Join(source.ErrDenied)
	status, text := r.do("POST", admin+"/sources/shop/rotate-secret", "owner", `{"install":true}`)
	var out client.RotatedSecret
	if err := json.Unmarshal([]byte(text), &out); err != nil || status != http.StatusOK || out.Secret != "rotated" || out.Installed || out.InstallError == "" {
		t.Errorf("%d %s", status, text)
	}
	if status, text := r.do("POST", admin+"/sources/shop/install-hook", "owner", ""); status != http.StatusConflict || !strings.Contains(text, "refused") {
		t.Errorf("%d %s", status, text)
	}
}

func TestAddForge(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	r.addSource("source-1", "shop")
	status, text := r.do("POST", admin+"/sources", "owner", `{"kind":"gitea","name":"shop","options":{"repository":"a/b"},"token":"tok-1","sshKey":"key-1"}`)
	if status != http.StatusCreated || !strings.Contains(text, "careful") || strings.Contains(text, "tok-1") || strings.Contains(text, "key-1") {
		t.Errorf("%d %s", status, text)
	}
	if f := r.intake.forge; f.Kind != "gitea" || f.Token != "tok-1" || f.SSHKey != "key-1" || string(f.Options) != `{"repository":"a/b"}` {
		t.Errorf("%+v", f)
	}
}

// What was last heard of a source is shown with it, and which secrets it has, without their values.
func TestSourceDetail(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		r := newRig(t, st)
		r.addSource("src", "shop")
		err := st.Write(t.Context(), func(tx *store.Tx) error {
			if _, err := tx.AddSourcePolls(t.Context(), 1000); err != nil {
				return err
			}
			_, err := tx.FinishSourcePoll(t.Context(), db.FinishSourcePollParams{SourceID: "src", NextAt: 3000, PolledAt: 2000, Failures: 2, LastError: "refused"})
			if err != nil {
				return err
			}
			for _, key := range []string{"webhook", "webhook_old"} {
				p := db.UpsertSecretParams{OrgID: "default", Scope: "__source__/src", Key: key, Sealed: []byte("sealed"), UpdatedAt: 5000}
				if err := tx.UpsertSecret(t.Context(), p); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		status, text := r.do("GET", admin+"/sources/shop", "owner", "")
		var s client.Source
		if err := json.Unmarshal([]byte(text), &s); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
		if s.WebhookURL != "http://ci/webhook/default/github/shop" || s.Poll == nil || s.Poll.Failures != 2 || s.Poll.Message != "refused" || s.Poll.LastAt == nil {
			t.Errorf("%s", text)
		}
		if len(s.Secrets) != 2 || s.Secrets[1].EndsAt == nil || s.Secrets[0].EndsAt != nil || strings.Contains(text, "sealed") {
			t.Errorf("%s", text)
		}
	})
}

// addSource stores a source of GitHub.
func (r *rig) addSource(id, name string) {
	r.t.Helper()
	err := r.Store.Write(r.t.Context(), func(tx *store.Tx) error {
		_, err := tx.InsertSource(r.t.Context(), db.InsertSourceParams{
			ID: id, OrgID: "default", Kind: "github", Name: name, RoutingKey: "github:" + id, Repo: "a/b", Config: "{}", Enabled: true, CreatedAt: 1,
		})
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
}
