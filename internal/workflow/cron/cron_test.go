package cron

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func parse(t testing.TB, expression, zone string) *Schedule {
	t.Helper()
	s, err := Parse(expression, zone)
	if err != nil {
		t.Fatalf("%s %s: %v", expression, zone, err)
	}
	return s
}

func instant(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// The instants that follow one after the other.
func TestNext(t *testing.T) {
	for _, c := range []struct {
		name, expression, zone, after string
		want                          []string
	}{
		{"five fields", "30 4 * * *", "", "2026-01-31T04:29:59Z", []string{"2026-01-31T04:30:00Z", "2026-02-01T04:30:00Z"}},
		{"strictly after", "30 4 * * *", "", "2026-01-31T04:30:00Z", []string{"2026-02-01T04:30:00Z"}},
		{"six fields", "10,50 0 0 * * *", "", "2026-01-31T00:00:00Z", []string{"2026-01-31T00:00:10Z", "2026-01-31T00:00:50Z", "2026-02-01T00:00:10Z"}},
		{"names", "0 0 1 JAN-MAR MON-WED", "UTC", "2026-03-30T00:00:00Z", []string{"2026-03-31T00:00:00Z", "2027-01-01T00:00:00Z"}},
		{"day of month or day of week", "0 12 13 * 5", "", "2026-02-10T00:00:00Z", []string{"2026-02-13T12:00:00Z", "2026-02-20T12:00:00Z", "2026-02-27T12:00:00Z", "2026-03-06T12:00:00Z", "2026-03-13T12:00:00Z"}},
		{"star in one restricts by the other", "0 12 * * 5", "", "2026-02-10T00:00:00Z", []string{"2026-02-13T12:00:00Z", "2026-02-20T12:00:00Z"}},
		{"sunday is 0 and 7", "0 0 * * 7", "", "2026-02-10T00:00:00Z", []string{"2026-02-15T00:00:00Z"}},
		{"leap day", "0 0 29 2 *", "", "2096-03-01T00:00:00Z", []string{"2104-02-29T00:00:00Z"}},
		{"daily", "@daily", "Asia/Kolkata", "2026-01-31T00:00:00Z", []string{"2026-01-31T18:30:00Z"}},
		{"zone", "30 4 * * *", "Europe/Berlin", "2026-01-31T04:00:00Z", []string{"2026-02-01T03:30:00Z"}},
		// Clocks go from 02:00 to 03:00 on 29 March 2026 and from 03:00 back to 02:00 on 25 October 2026 (CRN-7, XC-54).
		{"gap", "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"}},
		{"several in the gap are one", "*/20 2 * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"}},
		{"gap meets its end", "0 2,3 * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"}},
		{"overlap", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
		{"overlap, asked in the second hour", "30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", []string{"2026-10-26T01:30:00Z"}},
		{"overlap of every hour", "30 * * * *", "Europe/Berlin", "2026-10-24T23:31:00Z", []string{"2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"}},
		{"gap of half an hour", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", []string{"2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"}},
		{"midnight that does not exist", "0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z", []string{"2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"}},
		{"a day that does not exist", "0 12 30 12 *", "Pacific/Apia", "2011-12-29T00:00:00Z", []string{"2011-12-30T10:00:00Z", "2012-12-29T22:00:00Z"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := parse(t, c.expression, c.zone)
			at := instant(t, c.after)
			for _, want := range c.want {
				next, ok := s.Next(at)
				if got := next.UTC().Format(time.RFC3339); !ok || got != want {
					t.Fatalf("after %s: %s %v, want %s", at, got, ok, want)
				}
				if last, ok := s.Last(at, next); !ok || !last.Equal(next) {
					t.Errorf("last in (%s, %s] is %s %v", at, next, last, ok)
				}
				if last, ok := s.Last(at, next.Add(-time.Second)); ok {
					t.Errorf("last before %s is %s", next, last)
				}
				at = next
			}
		})
	}
}

func TestLastOfSeveral(t *testing.T) {
	s := parse(t, "0 * * * *", "")
	got, ok := s.Last(instant(t, "2026-01-01T00:00:00Z"), instant(t, "2026-01-01T05:10:00Z"))
	if want := instant(t, "2026-01-01T05:00:00Z"); !ok || !got.Equal(want) {
		t.Errorf("%s %v", got, ok)
	}
	if _, ok := s.Last(instant(t, "2026-01-01T05:00:00Z"), instant(t, "2026-01-01T03:00:00Z")); ok { // the clock went back
		t.Error("an instant between a later and an earlier one")
	}
	if got, ok := s.Last(time.UnixMilli(0), instant(t, "2026-01-01T05:10:00Z")); !ok || got.Hour() != 5 {
		t.Errorf("since 1970: %s %v", got, ok)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ expression, zone, says string }{
		{"", "", "5 fields"},
		{"* * * *", "", "got 4"},
		{"* * * * * * *", "", "got 7"},
		{"60 * * * *", "", "60"},
		{"* * 0 * *", "", "0"},
		{"@every 1h", "", "@every"},
		{"@reboot", "", "@reboot"},
		{"TZ=UTC * * * * *", "", "timezone"},
		{"0 0 30 2 *", "", "no date"},
		{"* * * * *", "Mars/Base", "time zone"},
		{"* * * * *", "Local", "machine"},
		{"* * * * *", "../../etc/passwd", "time zone"},
		{strings.Repeat("1,", 200) + "1 * * * *", "", "longer"},
	} {
		if _, err := Parse(c.expression, c.zone); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q %q: %v, want %q", c.expression, c.zone, err, c.says)
		}
	}
}

// bits is an independent reading of the fields that the property draws.
type bits struct{ minute, hour, dom, month, dow []int }

func (b bits) expression() string {
	var parts []string
	for _, f := range [][]int{b.minute, b.hour, b.dom, b.month, b.dow} {
		if f == nil {
			parts = append(parts, "*")
			continue
		}
		parts = append(parts, strings.Trim(strings.ReplaceAll(fmt.Sprint(f), " ", ","), "[]"))
	}
	return strings.Join(parts, " ")
}

func has(field []int, n int) bool {
	for _, f := range field {
		if f == n {
			return true
		}
	}
	return field == nil
}

func (b bits) matches(local time.Time) bool {
	day := has(b.dom, local.Day()) && has(b.dow, int(local.Weekday()))
	if b.dom != nil && b.dow != nil {
		day = has(b.dom, local.Day()) || has(b.dow, int(local.Weekday()))
	}
	return day && has(b.month, int(local.Month())) && has(b.hour, local.Hour()) && has(b.minute, local.Minute())
}

// walk is what fires in (from, to], by looking at every minute: the ones that the clock skips fire when it goes on, the ones that
// it shows again do not, unless every hour counts.
func (b bits) walk(loc *time.Location, from, to time.Time) []int64 {
	var out []int64
	clock := func(t time.Time) time.Time {
		l := t.In(loc)
		return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), 0, 0, time.UTC)
	}
	everyHour := b.hour == nil
	start := from.Add(-48 * time.Hour)
	shown := clock(start)
	for t := start.Add(time.Minute); !t.After(to); t = t.Add(time.Minute) {
		now, fires := clock(t), false
		if now.After(shown) {
			for l := shown.Add(time.Minute); !l.After(now); l = l.Add(time.Minute) {
				fires = fires || b.matches(l)
			}
			shown = now
		} else {
			fires = everyHour && b.matches(now)
		}
		if fires && t.After(from) {
			out = append(out, t.Unix())
		}
	}
	return out
}

var zones = []string{
	"UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Kolkata", "Asia/Kathmandu",
	"Africa/Casablanca", "Pacific/Apia", "America/St_Johns", "Asia/Beirut", "America/Havana", "Antarctica/Troll", "Pacific/Chatham",
}

func field(t *rapid.T, name string, low, high int) []int {
	if rapid.IntRange(0, 2).Draw(t, name+" is *") == 0 {
		return nil
	}
	return rapid.SliceOfNDistinct(rapid.IntRange(low, high), 1, 4, rapid.ID[int]).Draw(t, name)
}

func TestAgreesWithAWalkOverEveryMinute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := bits{
			minute: field(t, "minute", 0, 59), hour: field(t, "hour", 0, 23), dom: field(t, "dom", 1, 28),
			month: field(t, "month", 1, 12), dow: field(t, "dow", 0, 6),
		}
		if rapid.Bool().Draw(t, "small hours") && b.hour != nil {
			b.hour, b.month, b.dow = []int{rapid.SampledFrom([]int{0, 1, 2, 3, 23}).Draw(t, "small hour")}, nil, nil
		}
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		s, err := Parse(b.expression(), zone)
		if err != nil {
			t.Fatal(err)
		}
		from := time.Unix(rapid.Int64Range(1_200_000_000, 1_900_000_000).Draw(t, "from")/60*60, 0)
		if rapid.Bool().Draw(t, "near a change of clocks") {
			if _, end := from.In(s.loc).ZoneBounds(); !end.IsZero() {
				from = end.Add(-time.Duration(rapid.IntRange(0, 30).Draw(t, "hours before")) * time.Hour).Truncate(time.Minute)
			}
		}
		to := from.Add(time.Duration(rapid.IntRange(1, 4*24*60).Draw(t, "minutes")) * time.Minute)
		want := b.walk(s.loc, from, to)
		at := from
		for _, w := range want {
			next, ok := s.Next(at)
			if !ok || next.Unix() != w {
				t.Fatalf("%s in %s after %s: %s %v, want %s", b.expression(), zone, at.In(s.loc), next, ok, time.Unix(w, 0).In(s.loc))
			}
			at = next
		}
		if next, ok := s.Next(at); ok && !next.After(to) {
			t.Fatalf("%s in %s: also at %s", b.expression(), zone, next)
		}
		last, ok := s.Last(from, to)
		if ok != (len(want) > 0) || ok && last.Unix() != want[len(want)-1] {
			t.Fatalf("%s in %s: last in (%s, %s] is %s %v, want %v", b.expression(), zone, from.In(s.loc), to.In(s.loc), last, ok, want)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"30 4 * * *", "*/5 * * * 1-5", "0 0 0 1 1 *", "@daily", "0 0 29 2 7", "L * * * *"} {
		f.Add(s, "Europe/Berlin")
	}
	f.Fuzz(func(t *testing.T, expression, zone string) {
		s, err := Parse(expression, zone)
		if err != nil {
			return
		}
		now := time.Unix(1_790_000_000, 0)
		next, ok := s.Next(now)
		if !ok || !next.After(now) {
			t.Errorf("%q %q: next is %s %v", expression, zone, next, ok)
		}
		if last, ok := s.Last(now, next); !ok || !last.Equal(next) {
			t.Errorf("%q %q: last is %s %v, next %s", expression, zone, last, ok, next)
		}
	})
}

func BenchmarkNext(b *testing.B) {
	s := parse(b, "30 4 * * 1-5", "Europe/Berlin")
	at := time.Unix(1_790_000_000, 0)
	for b.Loop() {
		at, _ = s.Next(at)
	}
}

func BenchmarkParse(b *testing.B) {
	for b.Loop() {
		parse(b, "30 4 * * 1-5", "Europe/Berlin")
	}
}
