package workflow

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // time zones are the same on every machine that compiles the file

	"github.com/netresearch/go-cron"
)

// ParseCron reads the five fields of POSIX cron, or @hourly, @daily, @weekly, @monthly, @yearly. As in cron, a day matches when the day
// of the month or the day of the week does, if both are given.
func ParseCron(expression string) (cron.Schedule, error) {
	switch {
	case strings.HasPrefix(expression, "TZ="), strings.HasPrefix(expression, "CRON_TZ="):
		return nil, errors.New("a time zone stands in timezone, not in the expression")
	case strings.HasPrefix(expression, "@every"):
		return nil, errors.New("@every is not supported")
	case strings.HasPrefix(expression, "@"):
	case len(strings.Fields(expression)) != 5:
		return nil, fmt.Errorf("it must have 5 fields, got %d", len(strings.Fields(expression)))
	}
	parser, err := cron.TryNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom)
	if err != nil {
		return nil, err
	}
	return parser.Parse(expression)
}

func checkCron(expression string) error {
	if len(expression) > 200 {
		return errors.New("longer than 200 bytes")
	}
	s, err := ParseCron(expression)
	if err != nil {
		return err
	}
	if s.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return errors.New("no date ever matches it")
	}
	return nil
}

func checkTimezone(name string) error {
	if name == "Local" {
		return errors.New("time zone Local differs from machine to machine")
	}
	if _, err := time.LoadLocation(name); err != nil {
		return fmt.Errorf("unknown time zone %q", short(name))
	}
	return nil
}
