package web

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kici-go/kici/client"
)

func job(id, base string, level int, class string, span ...int64) client.Job {
	j := client.Job{ID: id, BaseName: base, DisplayName: id, Level: level, Display: client.Status{Word: class, Class: class}}
	if len(span) > 0 {
		from := client.TimeOf(span[0])
		j.StartedAt = &from
	}
	if len(span) > 1 {
		to, took := client.TimeOf(span[1]), span[1]-span[0]
		j.FinishedAt, j.DurationMs = &to, &took
	}
	return j
}

func TestGraphPutsJobsIntoColumns(t *testing.T) {
	jobs := []client.Job{
		job("lint", "lint", 0, "success", 1000, 2000), job("test (a)", "test", 1, "failed", 2000, 5000), job("test (b)", "test", 1, "running", 3000),
		job("deploy", "deploy", 2, "pending"),
	}
	took := int64(8000)
	jobs[2].DurationMs = &took
	g := graphOf(jobs, "", 11_000)
	g.now, g.length = 11_000, 10_000 // as if time were not coarse
	var names [][]string
	for _, col := range g.Columns {
		var in []string
		for _, c := range col {
			in = append(in, c.Jobs[0].ID)
		}
		names = append(names, in)
	}
	if diff := cmp.Diff([][]string{{"lint"}, {"test (a)", "test (b)"}, {"deploy"}}, names); diff != "" {
		t.Error(diff)
	}
	for i, want := range []string{"0.00+10.00", "10.00+30.00", "20.00+80.00", ""} {
		x, w, ok := g.bar(jobs[i])
		if got := strings.TrimSuffix(x+"+"+w, "+"); got != want || ok != (want != "") {
			t.Errorf("bar of %s: %s %v, want %s", jobs[i].ID, got, ok, want)
		}
	}
	if h := g.headline(); h != "4 jobs: 1 success, 1 failed, 1 running, 1 pending" {
		t.Error(h)
	}
}

func TestGraphFoldsAWideMatrix(t *testing.T) {
	var jobs []client.Job
	for i := range foldFrom {
		class := "success"
		if i == 5 {
			class = "failed"
		}
		jobs = append(jobs, job(string(rune('a'+i)), "test", 0, class))
	}
	jobs = append(jobs, job("z", "lint", 0, "success"))
	g := graphOf(jobs, "c", 0)
	if len(g.Columns[0]) != 2 {
		t.Fatalf("%d cells, want a group and a job", len(g.Columns[0]))
	}
	fan := g.Columns[0][0]
	if fan.Group != "test" || !fan.Open || len(fan.Jobs) != foldFrom || fan.Jobs[0].ID != "f" || fan.summary() != "8 success, 1 failed" {
		t.Errorf("group %q open %v, %d jobs, first %q: %s", fan.Group, fan.Open, len(fan.Jobs), fan.Jobs[0].ID, fan.summary())
	}
	if g := graphOf(jobs, "z", 0); g.Columns[0][0].Open {
		t.Error("a group that does not hold the open job is unfolded")
	}
	if g := graphOf(jobs[1:], "", 0); len(g.Columns[0]) != foldFrom {
		t.Error("a narrow matrix is folded")
	}
}

func TestBarsStayInsideTheRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var jobs []client.Job
		for range rapid.IntRange(1, 8).Draw(t, "jobs") {
			from := rapid.Int64Range(1, 1<<40).Draw(t, "from")
			jobs = append(jobs, job("j", "j", 0, "success", from, from+rapid.Int64Range(-10, 1<<30).Draw(t, "length")))
		}
		g := graphOf(jobs, "", 0)
		for _, j := range jobs {
			x, w, _ := g.bar(j)
			if left, width := number64(x), number64(w); left < 0 || width <= 0 || left+width > 100.02 {
				t.Fatalf("bar %s + %s", x, w)
			}
		}
	})
}

func TestOpenJobIsTheOneToLookAt(t *testing.T) {
	all := []client.Job{job("ok1", "", 0, "success"), job("may", "", 0, "allowed"), job("ok2", "", 1, "success"), job("run", "", 1, "running"), job("bad", "", 1, "failed")}
	for _, c := range []struct {
		jobs        []client.Job
		asked, want string
	}{
		{all, "", "bad"}, {all, "ok1", "ok1"}, {all, "gone", "bad"}, {all[:4], "", "run"}, {all[:3], "", "may"}, {[]client.Job{all[0], all[2]}, "", "ok2"}, {nil, "x", ""},
	} {
		if got := openJob(c.jobs, c.asked); got != c.want {
			t.Errorf("asked %q of %d jobs: %q, want %q", c.asked, len(c.jobs), got, c.want)
		}
	}
}

func TestRunFilterRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`([^\s\x00-\x20](.{0,40}[^\s\x00-\x20])?)?`)
		var f runFilter
		for _, x := range f.fields() {
			*x.value = strings.ToValidUTF8(strings.TrimSpace(s.Draw(t, x.name)), "")
		}
		q, err := url.ParseQuery(f.query())
		if err != nil {
			t.Fatal(err)
		}
		if got := filterOf(q); got != f {
			t.Fatalf("%+v became %+v", f, got)
		}
		if f.with("status", "failed").Cursor != "" {
			t.Fatal("another filter keeps the cursor of this one")
		}
	})
}

func TestNextNeverLeavesTheSite(t *testing.T) {
	for in, want := range map[string]string{
		"/runs/1?step=2": "/runs/1?step=2", "/queue": "/queue", "/deliveries/x": "/deliveries/x", "/agents?all=1": "/agents?all=1",
		"": "/runs", "/": "/runs", "//evil": "/runs", "https://evil/runs": "/runs", "/\\evil": "/runs", "/runs//evil": "/runs", "runs": "/runs",
		"javascript:alert(1)": "/runs", "/runs\r\nSet-Cookie: a=b": "/runs", "/logout": "/runs", "/runsevil": "/runs", "\t//evil": "/runs", "/login?next=/login": "/runs",
	} {
		r := httptest.NewRequest(http.MethodGet, "/login?next="+url.QueryEscape(in), nil)
		if got := next(r); got != want {
			t.Errorf("next %q: %q, want %q", in, got, want)
		}
	}
}

func FuzzNext(f *testing.F) {
	f.Add("//evil")
	f.Add("/runs/..//evil")
	f.Fuzz(func(t *testing.T, in string) {
		r := httptest.NewRequest(http.MethodGet, "/login?next="+url.QueryEscape(in), nil)
		u, err := url.Parse("http://ours" + next(r))
		if err != nil || u.Host != "ours" || !strings.HasPrefix(next(r), "/") || strings.HasPrefix(next(r), "//") {
			t.Fatalf("next %q leads to %v, %v", in, u, err)
		}
	})
}

func TestPositionRoundTrip(t *testing.T) {
	for _, p := range []logPosition{{}, {1, 0, true, ""}, {2, 17, false, "123-4"}, {1, 2, true, "a|b"}} {
		if got, ok := parsePosition(p.String()); !ok || got != p {
			t.Errorf("%+v became %+v, %v", p, got, ok)
		}
	}
	for _, s := range []string{"", "1", "1|2|true", "x|1|true|", "1|y|true|"} {
		if _, ok := parsePosition(s); ok {
			t.Errorf("%q was accepted", s)
		}
	}
}

func number64(s string) float64 {
	f, _ := strconv.ParseFloat(s, 64)
	return f
}
