package app

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/storetest"
)

// withoutServer opens what the options name and returns a client of it.
func withoutServer(t *testing.T, o Options) (*client.Client, func() error) {
	t.Helper()
	off, err := OpenOffline(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	cl, err := client.New(client.Config{URL: off.URL, Token: off.Token, UserAgent: "kici/test"})
	if err != nil {
		t.Fatal(err)
	}
	if bad, _ := client.New(client.Config{URL: off.URL, Token: strings.Repeat("0", 64)}); true {
		var refused *client.StatusError
		if _, err := bad.Tokens(t.Context()); !errors.As(err, &refused) || refused.Status != 401 {
			t.Errorf("with another token: %v", err)
		}
	}
	return cl, off.Close
}

// Commands without a server check and record what a server does (CLI-5, ADM-14).
func TestWithoutAServer(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenOffline(t.Context(), Options{DataDir: dir}); err == nil || !strings.Contains(err.Error(), "there is no database in") {
		t.Fatalf("an empty directory: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("it made %v", left)
	}
	_, stop := boot(t, Options{DataDir: dir})
	if _, err := OpenOffline(t.Context(), Options{DataDir: dir}); err == nil || !strings.Contains(err.Error(), "leave --offline out") {
		t.Errorf("beside a server: %v", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	cl, end := withoutServer(t, Options{DataDir: dir})
	made, err := cl.CreateToken(t.Context(), client.NewToken{Label: "ci", Role: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	var refused *client.StatusError
	if _, err := cl.EmitEvent(t.Context(), client.NewEvent{Name: "kici.forged"}, ""); !errors.As(err, &refused) || refused.Status != 400 {
		t.Errorf("a reserved name: %v", err)
	}
	if _, err := cl.SetClusterSettings(t.Context(), nil); !errors.As(err, &refused) || refused.Status != 400 {
		t.Errorf("no setting: %v", err)
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	s, _ := boot(t, Options{DataDir: dir})
	again, err := client.New(client.Config{URL: s.URL(), Token: made.Token})
	if err != nil {
		t.Fatal(err)
	}
	log, err := again.AccessLog(t.Context(), client.AccessQuery{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range log.Items {
		if strings.Contains(e.Label, "(without a server)") {
			got[e.Action+" "+e.Outcome] = e.Source
		}
	}
	for _, want := range []string{"token.create allowed", "event.emit error", "cluster_settings.update error"} {
		if got[want] != access.SourceCLI {
			t.Errorf("%q is not recorded: %v", want, got)
		}
	}
}

// On PostgreSQL the key must be the cluster's, the schema this program's, and running servers are told.
func TestWithoutAServerOnPostgreSQL(t *testing.T) {
	d := storetest.PostgreSQLDatabase(t)
	url, key := d.Config.URL, strings.Repeat("ab", 32)
	if _, err := OpenOffline(t.Context(), Options{DatabaseURL: url}); err == nil || !strings.Contains(err.Error(), "KICI_SECRET_KEY") {
		t.Errorf("no key: %v", err)
	}
	s, _ := boot(t, Options{DatabaseURL: url, SecretKey: key})
	if _, err := OpenOffline(t.Context(), Options{DatabaseURL: url, SecretKey: strings.Repeat("cd", 32)}); err == nil || !strings.Contains(err.Error(), "master key") {
		t.Errorf("another key: %v", err)
	}
	sub := s.store.Subscribe(store.TopicSettings, "")
	defer sub.Close()
	cl, end := withoutServer(t, Options{DatabaseURL: url, SecretKey: key})
	if _, err := cl.SetClusterSettings(t.Context(), map[string]json.RawMessage{"queueMaxDepth": json.RawMessage("7")}); err != nil {
		t.Fatal(err)
	}
	<-sub.C()
	list, err := cl.Instances(t.Context())
	if err != nil || len(list.Instances) != 1 {
		t.Errorf("instances %+v, %v", list, err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "kici-offline-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
