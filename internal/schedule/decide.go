package schedule

import (
	"time"

	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow/cron"
)

// action is what becomes of a schedule whose time has come.
type action int

const (
	actFire   action = iota + 1 // take the instant and emit its event
	actWait                     // it is not due after all: the zone's rules or the clock have changed
	actPause                    // its registration is disabled
	actRefuse                   // its expression cannot be read (CRN-1)
)

// decision is what to do with one schedule.
type decision struct {
	action  action
	instant int64 // of actFire: the most recent one that was due; several missed ones are this one (CRN-2)
	next    int64 // when it is due after that, 0 for never
	why     string
}

// decide looks at one schedule at an instant. It fires what is after the last fired instant and not after now, so that a clock that
// steps back repeats nothing (CRN-8).
func decide(row db.DueSchedulesRow, s *cron.Schedule, err error, now int64) decision {
	switch {
	case err != nil:
		return decision{action: actRefuse, why: err.Error()}
	case row.Disabled:
		return decision{action: actPause}
	}
	after := max(now, row.LastFiredAt)
	d := decision{action: actWait}
	if next, ok := s.Next(time.UnixMilli(after)); ok {
		d.next = next.UnixMilli()
	}
	if at, ok := s.Last(time.UnixMilli(row.LastFiredAt), time.UnixMilli(now)); ok {
		d.action, d.instant = actFire, at.UnixMilli()
	}
	return d
}

// parsed remembers expressions. It is emptied when it is full: schedules of one expression are many, expressions are few.
type parsed map[string]parsedOne

type parsedOne struct {
	schedule *cron.Schedule
	err      error
}

const maxParsed = 4096

func (p parsed) get(expression, timezone string) (*cron.Schedule, error) {
	key := expression + "\n" + timezone
	if one, ok := p[key]; ok {
		return one.schedule, one.err
	}
	if len(p) >= maxParsed {
		clear(p)
	}
	s, err := cron.Parse(expression, timezone)
	p[key] = parsedOne{s, err}
	return s, err
}
