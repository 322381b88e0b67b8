package api

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/store/storetest"
)

// nodes is a server whose configuration is refused.
type nodes struct{ dry []bool }

func (n *nodes) ReloadScalers(_ context.Context, dryRun bool) client.ScalerReload {
	n.dry = append(n.dry, dryRun)
	return client.ScalerReload{Node: "n1", DryRun: dryRun, Refused: "the file is not valid", Changes: []client.ScalerChange{}, Problems: []client.ScalerProblem{{File: "f", Line: 3, Message: "m"}}}
}

// TestReloadScalers: a refusal is an answer with its problems, not an error.
func TestReloadScalers(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	for _, body := range []string{`{}`, `{"dryRun":true}`} {
		status, text := r.do("POST", admin+"/scaler/reload", "admin", body)
		var out client.ScalerReload
		if err := json.Unmarshal([]byte(text), &out); status != 200 || err != nil || out.Refused == "" || len(out.Problems) != 1 {
			t.Errorf("%d %s", status, text)
		}
	}
	if n := r.api.d.Node.(*nodes); len(n.dry) != 2 || n.dry[0] || !n.dry[1] {
		t.Errorf("%v", n.dry)
	}
}
