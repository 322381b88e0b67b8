package ingress

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
)

// A purge takes what is off, quiet and of the organisation that asks, and nothing else (ADM-13).
func TestPurgeStaleSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := storetest.SQLite(t)
		w := newWorld(t, st)
		err := st.Write(t.Context(), func(tx *store.Tx) error { return tx.InsertOrg(t.Context(), "other", tx.Now()) })
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []struct{ org, name string }{{"default", "old"}, {"default", "heard"}, {"default", "used"}, {"other", "theirs"}} {
			_, err := w.in.AddGeneric(t.Context(), GenericSource{OrgID: s.org, Name: s.name, Options: []byte(`{"verificationMethod":"none"}`)})
			if err != nil {
				t.Fatal(err)
			}
		}
		off := func(org, name string) {
			if err := w.in.Enable(t.Context(), org, name, false); err != nil {
				t.Fatal(err)
			}
		}
		purge := func(dry bool) []string {
			found, err := w.in.PurgeStale(t.Context(), PurgeRequest{OrgID: "default", Idle: 48 * time.Hour, DryRun: dry})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, s := range found {
				names = append(names, s.Name)
			}
			return names
		}
		off("default", "old")
		off("other", "theirs")
		time.Sleep(24 * time.Hour)
		if got := purge(false); len(got) != 0 {
			t.Errorf("after a day: %v", got)
		}
		if got := w.post("heard", []byte("{}"), map[string]string{"X-Event-Type": "x"}); got.code != 202 {
			t.Fatalf("%+v", got)
		}
		off("default", "heard")
		time.Sleep(25 * time.Hour)
		for _, dry := range []bool{true, false} {
			if got := purge(dry); !slices.Equal(got, []string{"old"}) {
				t.Errorf("dry %v: %v", dry, got)
			}
		}
		if _, err := w.in.Get(t.Context(), "default", "old"); !errors.Is(err, ErrNotFound) {
			t.Errorf("it is still there: %v", err)
		}
		if got, err := w.in.Get(t.Context(), "other", "theirs"); err != nil || got == (db.Source{}) {
			t.Errorf("another organisation's: %v", err)
		}
		time.Sleep(24 * time.Hour)
		if got := purge(false); !slices.Equal(got, []string{"heard"}) {
			t.Errorf("later: %v", got)
		}
	})
}
