package engines

import (
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/scaler/backend/container/enginetest"
)

// How far a pull is can be seen wherever a person waits for it: the job's why, its run, and the list of scalers (CT-10). It is gone with the
// launch.
func TestE2EPullProgressIsSeen(t *testing.T) {
	e := enginetest.Get(t, "docker")
	registry := enginetest.NewBigRegistry(t, 8<<20)
	release := registry.Hold()
	defer release()
	w := makeWorld(t, e, setup{image: registry.Ref("seen"), pull: "IfNotPresent"})
	w.open()
	id := w.startRun("counted")
	scaler := func() string {
		list, err := w.api.Scalers(t.Context())
		if err != nil || len(list.Scalers) != 1 {
			t.Fatalf("%+v %v", list, err)
		}
		return list.Scalers[0].State + ": " + list.Scalers[0].StateText
	}
	text := "pulling " + registry.Ref("seen") + ": "
	seen := func(s string) bool { return strings.Contains(s, text) && strings.Contains(s, " MB of 9.5 MB") }
	w.until("why says it", func() bool { return seen(w.why(id)) })
	t.Log(w.why(id))
	d := w.run(id)
	if len(d.Jobs) != 1 || !seen(d.Jobs[0].Why) {
		t.Errorf("the run says %s", show(d.Jobs))
	}
	if got := scaler(); !strings.HasPrefix(got, "ready: ") || !seen(got) {
		t.Errorf("the scaler says %q", got)
	}
	release()
	if d := w.ended(id); d.Status != "success" {
		t.Fatalf("%s", show(d))
	}
	if got := scaler(); got != "ready: " {
		t.Errorf("afterwards the scaler says %q", got)
	}
}
