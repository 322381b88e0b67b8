// Package cron knows when a schedule is due: an expression of five or six fields in a time zone (CRN-1, CRN-7). It is pure: it
// reads no clock. The fields are parsed by go-cron; the walk over time is ours, because daylight saving decides whether an instant
// fires never, once or twice.
//
// A day matches when the day of the month or the day of the week does, if both are restricted. A local time that does not exist
// fires at the first instant after the gap. One that exists twice fires the first time only; an expression that names every hour
// goes on through the repeated hour instead, since it means an interval and not a time of day.
package cron

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"
	_ "time/tzdata" // time zones are the same on every machine

	gocron "github.com/netresearch/go-cron"
)

// UTC is the zone of a schedule that names none.
const UTC = "UTC"

// MaxExpression bounds an expression, in bytes.
const MaxExpression = 200

// maxDays bounds the search for a day that matches: 29 February comes after eight years at the latest.
const maxDays = 9 * 366

const starBit = 1 << 63 // go-cron's mark of a field that restricts nothing

// Schedule is one expression in one zone. It never changes.
type Schedule struct {
	spec                    *gocron.SpecSchedule
	loc                     *time.Location
	hours, minutes, seconds []int64 // rising
	everyHour               bool
}

// Parse reads minute, hour, day of month, month and day of week, with seconds before them if there are six fields, or @hourly,
// @daily, @weekly, @monthly, @yearly. zone is an IANA name, "" for UTC. The error says what is wrong and never repeats the input.
func Parse(expression, zone string) (*Schedule, error) {
	loc, err := location(zone)
	if err != nil {
		return nil, err
	}
	spec, err := fields(expression)
	if err != nil {
		return nil, err
	}
	s := &Schedule{spec: spec, loc: loc, hours: members(spec.Hour, 24), minutes: members(spec.Minute, 60), seconds: members(spec.Second, 60)}
	s.everyHour = len(s.hours) == 24
	if _, ok := s.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)); !ok {
		return nil, errors.New("no date ever matches it")
	}
	return s, nil
}

func location(zone string) (*time.Location, error) {
	switch zone {
	case "":
		zone = UTC
	case "Local":
		return nil, errors.New("time zone Local differs from machine to machine")
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		return nil, errors.New("the time zone is not known")
	}
	return loc, nil
}

// CheckZone says what is wrong with a time zone.
func CheckZone(zone string) error {
	_, err := location(zone)
	return err
}

func fields(expression string) (*gocron.SpecSchedule, error) {
	options := gocron.Minute | gocron.Hour | gocron.Dom | gocron.Month | gocron.Dow | gocron.DowOrDom
	n := len(strings.Fields(expression))
	switch {
	case len(expression) > MaxExpression:
		return nil, fmt.Errorf("longer than %d bytes", MaxExpression)
	case strings.HasPrefix(expression, "TZ="), strings.HasPrefix(expression, "CRON_TZ="):
		return nil, errors.New("a time zone stands in timezone, not in the expression")
	case strings.HasPrefix(expression, "@every"):
		return nil, errors.New("@every is not supported")
	case strings.HasPrefix(expression, "@"):
		options |= gocron.Descriptor
	case n == 6:
		options |= gocron.Second
	case n != 5:
		return nil, fmt.Errorf("it must have 5 fields, or 6 with seconds, got %d", n)
	}
	parser, err := gocron.TryNewParser(options)
	if err != nil {
		return nil, err
	}
	parsed, err := parser.Parse(expression)
	if err != nil {
		return nil, err
	}
	spec, ok := parsed.(*gocron.SpecSchedule)
	if !ok {
		return nil, errors.New("it is not supported")
	}
	return spec, nil
}

func members(bits uint64, most int) []int64 {
	var out []int64
	for i := range most {
		if bits&(1<<i) != 0 {
			out = append(out, int64(i))
		}
	}
	return out
}

const day = 24 * 60 * 60

// times is how often the expression fires on a day, and at is the i-th of those, in seconds since local midnight.
func (s *Schedule) times() int { return len(s.hours) * len(s.minutes) * len(s.seconds) }

func (s *Schedule) at(i int) int64 {
	sec, i := s.seconds[i%len(s.seconds)], i/len(s.seconds)
	return s.hours[i/len(s.minutes)]*3600 + s.minutes[i%len(s.minutes)]*60 + sec
}

// Next is the first instant after t, or false when there is none within nine years.
func (s *Schedule) Next(t time.Time) (time.Time, bool) {
	date := floorDay(wall(t.In(s.loc))) - day // a gap may have moved yesterday's instants to today
	for range maxDays {
		if s.dayMatches(date) {
			i := sort.Search(s.times(), func(i int) bool { return s.first(date + s.at(i)).After(t) })
			if i < s.times() {
				found := s.first(date + s.at(i))
				if again, ok := s.repeatedBetween(t, found); ok {
					return again, true
				}
				return found, true
			}
		}
		date += day
	}
	return time.Time{}, false
}

// Last is the most recent instant after since and not after now, or false when there is none (CRN-2).
func (s *Schedule) Last(since, now time.Time) (time.Time, bool) {
	oldest := floorDay(wall(since.In(s.loc))) - day
	date := floorDay(wall(now.In(s.loc))) + day // a clock that went back over midnight has been in tomorrow
	if lowest := date - maxDays*day; oldest < lowest {
		oldest = lowest
	}
	var found time.Time
	for ; date >= oldest && found.IsZero(); date -= day {
		if !s.dayMatches(date) {
			continue
		}
		if i := sort.Search(s.times(), func(i int) bool { return s.first(date + s.at(i)).After(now) }); i > 0 {
			found = s.first(date + s.at(i-1))
		}
	}
	if !found.After(since) {
		found = since
	}
	for { // later ones in a repeated hour
		again, ok := s.repeatedBetween(found, now.Add(time.Second))
		if !ok || again.After(now) {
			break
		}
		found = again
	}
	return found, found.After(since)
}

// dayMatches tells of a local date, given as its midnight in wall seconds.
func (s *Schedule) dayMatches(date int64) bool {
	t := time.Unix(date, 0).UTC()
	if s.spec.Month&(1<<t.Month()) == 0 {
		return false
	}
	dom, dow := s.spec.Dom&(1<<t.Day()) != 0, s.spec.Dow&(1<<t.Weekday()) != 0
	if s.spec.Dom&starBit != 0 || s.spec.Dow&starBit != 0 {
		return dom && dow
	}
	return dom || dow
}

// first is the instant at which a local time fires: when it is there for the first time, or when the gap ends that it falls in.
func (s *Schedule) first(local int64) time.Time {
	t := time.Date(1970, 1, 1, 0, 0, int(local), 0, s.loc)
	start, end := t.ZoneBounds()
	switch got := wall(t); {
	case got > local:
		return start
	case got < local:
		return end
	}
	if back := setBack(start, s.loc); back > 0 {
		if earlier := t.Add(-back); earlier.Before(start) && wall(earlier) == local {
			return earlier
		}
	}
	return t
}

// repeatedBetween is the first instant between the two, excluding both, that shows a local time for the second time and matches an
// expression of every hour.
func (s *Schedule) repeatedBetween(after, before time.Time) (time.Time, bool) {
	if !s.everyHour {
		return time.Time{}, false
	}
	start, end := after.In(s.loc).ZoneBounds()
	for {
		if back := setBack(start, s.loc); back > 0 {
			if t, ok := s.scan(later(start, after.Add(time.Second)), earlier(start.Add(back), before)); ok {
				return t, true
			}
		}
		if end.IsZero() || !end.Before(before) {
			return time.Time{}, false
		}
		start, end = end.ZoneBounds()
	}
}

// scan is the first instant of [from, to) whose local time matches.
func (s *Schedule) scan(from, to time.Time) (time.Time, bool) {
	for t := from.Truncate(time.Second); t.Before(to); {
		local := wall(t.In(s.loc))
		date := floorDay(local)
		i := sort.Search(s.times(), func(i int) bool { return s.at(i) >= local-date })
		if i < s.times() && s.dayMatches(date) {
			t = t.Add(time.Duration(s.at(i)-(local-date)) * time.Second)
			return t.In(s.loc), t.Before(to)
		}
		t = t.Add(time.Duration(date+day-local) * time.Second)
	}
	return time.Time{}, false
}

// setBack is how far clocks are set back at an instant at which a zone begins, 0 for not at all.
func setBack(start time.Time, loc *time.Location) time.Duration {
	if start.IsZero() {
		return 0
	}
	_, before := start.Add(-time.Second).In(loc).Zone()
	_, since := start.In(loc).Zone()
	return time.Duration(max(before-since, 0)) * time.Second
}

// wall is what the clock on the wall shows, as seconds.
func wall(t time.Time) int64 {
	_, offset := t.Zone()
	return t.Unix() + int64(offset)
}

func floorDay(seconds int64) int64 { return seconds - ((seconds%day)+day)%day }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
