package workflow

import (
	"errors"
	"fmt"

	"github.com/kici-go/kici/internal/workflow/cron"
	"github.com/kici-go/kici/internal/workflow/lock"
)

func checkCron(expression string) error {
	_, err := cron.Parse(expression, "")
	return err
}

func checkTimezone(name string) error {
	switch {
	case name == "Local":
		return cron.CheckZone(name)
	case cron.CheckZone(name) != nil:
		return fmt.Errorf("unknown time zone %q", short(name))
	}
	return nil
}

// ScheduleInputs are what a run of a schedule gets: every input its default (WF-9).
func ScheduleInputs(trigger *lock.Trigger) (map[string]any, error) {
	inputs, problems := ResolveInputs(trigger, nil)
	if len(problems) > 0 {
		return nil, errors.New(problems[0].Message)
	}
	return inputs, nil
}

// ScheduleTrigger returns the first schedule of a workflow, or nil.
func ScheduleTrigger(w *lock.Workflow) *lock.Trigger {
	for i := range w.On {
		if w.On[i].Type == TypeSchedule {
			return &w.On[i]
		}
	}
	return nil
}
