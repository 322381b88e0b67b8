package ingress

import (
	"net/http"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/store"
)

func TestPushStartsTheMatchingWorkflows(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st).run()
		r, sha := newRepo(t, map[string]string{
			".kici/workflows/ci.yaml":    yaml("ci", "push"),
			".kici/workflows/other.yaml": yaml("other", "{push: {branches: [release/*]}}"),
		})
		secret := w.source("demo", r.dir)
		got := w.push("demo", secret, pushOf("refs/heads/main", "", sha), "d1")
		if got.code != http.StatusAccepted || !got.Accepted || got.DeliveryID == "" {
			t.Fatalf("%+v", got)
		}
		d := w.delivery(got.DeliveryID)
		if d.Status != statusProcessed || d.Matched != 1 || d.Sha != sha || d.Ref != "refs/heads/main" || d.Repo != "demo" {
			t.Errorf("%+v", d)
		}
		runs := w.runs()
		if len(runs) != 1 || runs[0].Workflow != "ci" || runs[0].Sha != sha || runs[0].Title != "first" || runs[0].Actor != "ann" ||
			runs[0].TriggerEvent != "push" || runs[0].ID != d.RunID.String || runs[0].DeliveryID != d.ID {
			t.Errorf("%+v", runs)
		}
		extra, err := st.Read().ReadDeliveryExtra(t.Context(), d.ID)
		if err != nil || !strings.Contains(extra.Decisions, `"workflow":"other","matched":false`) || !strings.Contains(extra.Decisions, `release/*`) {
			t.Errorf("decisions %s %v", extra.Decisions, err)
		}
		if strings.Contains(strings.ToLower(extra.Headers), secret) {
			t.Error("the secret is stored with the delivery")
		}
	})
}
