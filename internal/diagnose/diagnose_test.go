package diagnose

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func check(name string, f Finding) Check {
	return Check{Name: name, Ask: func(context.Context) Finding { return f }}
}

func TestVerdict(t *testing.T) {
	pass, warn, fail, skip := Passed("fine"), Warned("do", "hm"), Failed("do", "bad"), Skipped("no server")
	for want, list := range map[Verdict][][]Finding{
		Healthy:   {{pass}, {pass, skip}},
		Degraded:  {{pass, warn, skip}, {warn}},
		Unhealthy: {{warn, fail}, {fail, pass}, {{}}}, // a finding without a status is no pass
	} {
		for _, findings := range list {
			var checks []Check
			for _, f := range findings {
				checks = append(checks, check("x", f))
			}
			if r := Run(context.Background(), checks, time.Minute); r.Status != want || len(r.Checks) != len(findings) {
				t.Errorf("%v: %s", findings, r.Status)
			}
		}
	}
	if r := Run(context.Background(), nil, time.Second); r.Status != Healthy {
		t.Error(r)
	}
}

// A check that hangs keeps its name and fails, the others are not held up; one that panics is a failure of its own.
func TestAHangingCheckKeepsItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := Run(context.Background(), []Check{
			{Name: "hangs", Ask: func(ctx context.Context) Finding { <-ctx.Done(); time.Sleep(time.Second); return Passed("late") }},
			check("quick", Passed("ok")),
			{Name: "breaks", Ask: func(context.Context) Finding { panic("oops") }},
		}, Timeout)
		if d := time.Since(began); d != Timeout {
			t.Errorf("took %s", d)
		}
		b, _ := json.Marshal(r)
		want := `{"status":"unhealthy","checks":[{"name":"hangs","status":"fail","message":"no answer within 5s","cure":"look why it takes so long: load, disk, network","durationMs":5000},` +
			`{"name":"quick","status":"pass","message":"ok","durationMs":0},{"name":"breaks","status":"fail","message":"the check itself broke: oops","cure":"report this as a bug","durationMs":0}]}`
		if string(b) != want {
			t.Errorf("%s", b)
		}
		time.Sleep(2 * time.Second)
	})
}

// A check about several things has a result for each of them, in its place.
func TestRows(t *testing.T) {
	rows := Check{Name: "scalers", Rows: func(context.Context) []Row {
		return []Row{{"scaler:a", Passed("fine")}, {"scaler:b", Warned("do", "hm")}}
	}}
	none := Check{Name: "nothing", Rows: func(context.Context) []Row { return nil }}
	breaks := Check{Name: "breaks", Rows: func(context.Context) []Row { panic("oops") }}
	r := Run(context.Background(), []Check{check("first", Passed("ok")), rows, none, breaks, check("last", Passed("ok"))}, time.Minute)
	var got string
	for _, c := range r.Checks {
		got += c.Name + "=" + string(c.Status) + " "
	}
	if want := "first=pass scaler:a=pass scaler:b=warn breaks=fail last=pass "; got != want || r.Status != Unhealthy {
		t.Errorf("%s: %q, want %q", r.Status, got, want)
	}
	if r := Run(context.Background(), []Check{none}, time.Minute); r.Status != Healthy || r.Checks == nil {
		t.Errorf("%+v", r)
	}
}
