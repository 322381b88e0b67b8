package schedule

import (
	"errors"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/store/db"
)

func at(t testing.TB, text string) int64 {
	t.Helper()
	v, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return v.UnixMilli()
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name, expression, zone string
		last, now              string
		disabled               bool
		want                   action
		instant, next          string
	}{
		{"due", "0 * * * *", "UTC", "2026-01-01T03:00:00Z", "2026-01-01T04:00:00Z", false, actFire, "2026-01-01T04:00:00Z", "2026-01-01T05:00:00Z"},
		{"due a while ago", "0 * * * *", "UTC", "2026-01-01T03:00:00Z", "2026-01-01T04:00:29Z", false, actFire, "2026-01-01T04:00:00Z", "2026-01-01T05:00:00Z"},
		{"XC-51: several missed are the last one", "0 * * * *", "UTC", "2026-01-01T03:00:00Z", "2026-01-01T08:30:00Z", false, actFire, "2026-01-01T08:00:00Z", "2026-01-01T09:00:00Z"},
		{"not yet", "0 * * * *", "UTC", "2026-01-01T03:00:00Z", "2026-01-01T03:59:59Z", false, actWait, "", "2026-01-01T04:00:00Z"},
		{"fired already", "0 * * * *", "UTC", "2026-01-01T04:00:00Z", "2026-01-01T04:00:10Z", false, actWait, "", "2026-01-01T05:00:00Z"},
		{"CRN-8: the clock went back", "0 * * * *", "UTC", "2026-01-01T06:00:00Z", "2026-01-01T04:30:00Z", false, actWait, "", "2026-01-01T07:00:00Z"},
		{"CRN-8: the clock went on by a year", "0 * * * *", "UTC", "2026-01-01T06:00:00Z", "2027-01-01T04:30:00Z", false, actFire, "2027-01-01T04:00:00Z", "2027-01-01T05:00:00Z"},
		{"XC-54: gap", "30 2 * * *", "Europe/Berlin", "2026-03-28T01:30:00Z", "2026-03-29T01:00:30Z", false, actFire, "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		{"XC-54: overlap, first hour", "30 2 * * *", "Europe/Berlin", "2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", false, actFire, "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		{"XC-54: overlap, second hour", "30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", false, actWait, "", "2026-10-26T01:30:00Z"},
		{"disabled", "0 * * * *", "UTC", "2026-01-01T03:00:00Z", "2026-01-01T04:00:00Z", true, actPause, "", ""},
	} {
		p := parsed{}
		s, err := p.get(c.expression, c.zone)
		if err != nil {
			t.Fatal(err)
		}
		d := decide(db.DueSchedulesRow{LastFiredAt: at(t, c.last), Disabled: c.disabled}, s, nil, at(t, c.now))
		var instant, next int64
		if c.instant != "" {
			instant = at(t, c.instant)
		}
		if c.next != "" {
			next = at(t, c.next)
		}
		if d.action != c.want || d.instant != instant || d.next != next {
			t.Errorf("%s: %+v, want %d %d %d", c.name, d, c.want, instant, next)
		}
	}
	if d := decide(db.DueSchedulesRow{}, nil, errors.New("it must have 5 fields"), 1); d.action != actRefuse || d.why == "" || d.next != 0 {
		t.Errorf("%+v", d)
	}
}

func TestParsedIsBounded(t *testing.T) {
	p := parsed{}
	for i := range maxParsed + 10 {
		_, _ = p.get("bad", time.Duration(i).String())
	}
	if len(p) > maxParsed {
		t.Errorf("%d entries", len(p))
	}
}
