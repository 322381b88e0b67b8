package ingress

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/sourcetest"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
)

func TestShares(t *testing.T) {
	for name, c := range map[string]struct {
		orgs    []string
		n, turn int
		want    []share
	}{
		"nobody":                    {nil, 8, 0, nil},
		"one needs none":            {[]string{"a"}, 8, 0, nil},
		"two":                       {[]string{"a", "b"}, 8, 0, []share{{"a", 4}, {"b", 4}}},
		"another begins":            {[]string{"a", "b"}, 7, 1, []share{{"b", 3}, {"a", 3}}},
		"fewer places than askers":  {[]string{"a", "b", "c"}, 2, 2, []share{{"c", 1}, {"a", 1}}},
		"no place":                  {[]string{"a", "b"}, 0, 0, nil},
		"more than one claim takes": {[]string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}, 9, 8, []share{{"i", 1}, {"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1}, {"f", 1}, {"g", 1}}},
	} {
		if got := shares(c.orgs, c.n, c.turn); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// XC-7: only the organisation that floods is refused, and the others' deliveries do not wait behind its own.
func TestXC7OneOrganisationFloods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sourcetest.Fake{}
		w := newWorld(t, storetest.SQLite(t), fakeSource(f), func(d *Deps) { d.Settings.MaxOpen, d.Settings.Workers = 10, 1 })
		sha := f.Commit("refs/heads/main", "first", nil)
		loud := w.source("loud", "/x")
		if err := w.st.Write(t.Context(), func(tx *store.Tx) error { return tx.InsertOrg(t.Context(), "quiet", tx.Now()) }); err != nil {
			t.Fatal(err)
		}
		if _, err := w.in.AddLocal(t.Context(), LocalSource{OrgID: "quiet", Name: "calm", Path: "/y", Repo: "calm"}); err != nil {
			t.Fatal(err)
		}
		taken := 0
		for i := range 20 {
			if w.push("loud", loud, pushOf("refs/heads/main", "", sha), fmt.Sprint(i)).code == http.StatusAccepted {
				taken++
			}
		}
		if taken != 5 {
			t.Errorf("%d deliveries of the loud one were taken, want half of ten", taken)
		}
		e, err := w.in.get(t.Context(), "quiet", "calm")
		if err != nil {
			t.Fatal(err)
		}
		if full, err := w.in.admission.full(t.Context(), w.st.Read(), "quiet", w.deps.Env.Now()); full || err != nil {
			t.Fatalf("the quiet one is refused: %v, %v", full, err)
		}
		got := source.Received{Delivery: source.Delivery{ID: "q", Event: "push", Body: []byte("{}")}}
		if _, err := w.in.accept(t.Context(), e.row, got, repeats{}); err != nil {
			t.Fatal(err)
		}
		rows := claimTwo(t, w)
		if !slices.ContainsFunc(rows, func(d db.Delivery) bool { return d.OrgID == "quiet" }) {
			t.Error("the quiet one waits behind the loud one's deliveries")
		}
	})
}

// claimTwo claims two deliveries as the worker does.
func claimTwo(t *testing.T, w *world) (rows []db.Delivery) {
	t.Helper()
	err := w.st.Write(t.Context(), func(tx *store.Tx) (err error) {
		rows, err = w.in.take(t.Context(), tx, 2)
		return err
	})
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d deliveries, %v", len(rows), err)
	}
	return rows
}
