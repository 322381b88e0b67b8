package app

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/diagnose"
)

// OP-13: no failure in five minutes passes, only warm ones warn, any for a job fails; the last error is cut, and retiring is shown.
func TestJudgeScaler(t *testing.T) {
	facts := []string{"Docker 28.1.1 at /var/run/docker.sock", "12 images"}
	long := strings.Repeat("é", 300)
	failed := func(bound, warm int) client.Scaler {
		return client.Scaler{State: "backing off", StateText: "until 12:00:00 UTC: x", MaxAgents: 4, FailedBound: bound, FailedWarm: warm, Failures: []client.ScalerFailure{{Error: long}, {Error: "older"}}}
	}
	for name, c := range map[string]struct {
		x      client.Scaler
		wrong  error
		status diagnose.Status
		says   string
	}{
		"well":                     {client.Scaler{State: "ready", ActiveCount: 3, MaxAgents: 8}, nil, diagnose.Pass, "ready, 3/8 agents, Docker 28.1.1 at /var/run/docker.sock, 12 images"},
		"full":                     {client.Scaler{State: "full", ActiveCount: 8, MaxAgents: 8}, nil, diagnose.Pass, "full, 8/8"},
		"retiring":                 {client.Scaler{State: "retiring"}, nil, diagnose.Pass, "retiring"},
		"draining":                 {client.Scaler{State: "draining"}, nil, diagnose.Pass, "draining"},
		"engine away":              {client.Scaler{State: "ready"}, errors.New("Docker at /x does not answer"), diagnose.Fail, "does not answer"},
		"not ready":                {client.Scaler{State: "not ready", StateText: "nft is missing"}, nil, diagnose.Fail, "nft is missing"},
		"failed for a job":         {failed(1, 3), nil, diagnose.Fail, "1 failed in 5 minutes for jobs, last: éé"},
		"failed for a pool":        {failed(0, 2), nil, diagnose.Warn, "2 failed in 5 minutes for warm pools, last: éé"},
		"deferred, nothing recent": {failed(0, 0), nil, diagnose.Warn, "until 12:00:00 UTC: x"},
		"another server, lost":     {client.Scaler{State: "node lost", StateText: "nothing was heard from hydra"}, nil, diagnose.Warn, "nothing was heard from hydra"},
	} {
		f := judgeScaler(c.x, facts, c.wrong)
		if f.Status != c.status || !strings.Contains(f.Message, c.says) || f.Status != diagnose.Pass && f.Cure == "" {
			t.Errorf("%s: %+v", name, f)
		}
		if _, last, ok := strings.Cut(f.Message, "last: "); ok && utf8.RuneCountInString(last) != maxCheckError {
			t.Errorf("%s: the error has %d characters", name, utf8.RuneCountInString(last))
		}
	}
	all := []client.Scaler{{Name: "a", NodeName: "x"}, {Name: "b", NodeName: "x"}, {Name: "a", NodeName: "y"}}
	if scalerRow(all, 0) != "scaler:a on x" || scalerRow(all, 1) != "scaler:b" {
		t.Errorf("%q %q", scalerRow(all, 0), scalerRow(all, 1))
	}
}

// The server's own examination has a row for its scaler, which says what was found on the host.
func TestDiagnoseHasARowForEachScaler(t *testing.T) {
	s, _ := boot(t, Options{})
	api, err := client.New(client.Config{URL: s.URL(), Token: s.AdminToken()})
	if err != nil {
		t.Fatal(err)
	}
	row := func() client.DiagnosisCheck {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		d, err := api.Diagnose(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range d.Checks {
			if c.Name == "scaler:local" {
				return c
			}
		}
		return client.DiagnosisCheck{}
	}
	var got client.DiagnosisCheck
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if got = row(); strings.Contains(got.Message, "agents run as ") {
			break
		}
	}
	if got.Status != "pass" || !strings.HasPrefix(got.Message, "ready, 0/") || !strings.Contains(got.Message, "limits are not enforced") || !strings.Contains(got.Message, " free in ") {
		t.Errorf("%+v", got)
	}
	t.Log(got.Message)
}
