package app

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/kici-go/kici/internal/dispatch"
	"github.com/kici-go/kici/internal/fleet"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/scaler"
)

// Tuning is the settings of the rooms.
type Tuning struct {
	Run      run.Settings
	Dispatch dispatch.Settings
	Fleet    fleet.Settings
	Scaler   scaler.Settings
	Ingress  ingress.Settings
	StopIn   time.Duration // for all parts together
}

func defaultTuning() Tuning {
	return Tuning{
		Run: run.DefaultSettings(), Dispatch: dispatch.DefaultSettings(), Fleet: fleet.DefaultSettings(),
		Scaler: scaler.DefaultSettings(), StopIn: 20 * time.Second,
	}
}

const varSpawnTimeout = "KICI_SCALER_SPAWN_TIMEOUT_MS"

// overlay sets what the environment says, and what two rooms must agree on.
func (t *Tuning) overlay(getenv func(string) string) error {
	if getenv != nil {
		errs := []error{t.Run.Overlay(getenv), t.Dispatch.Overlay(getenv)}
		if text := getenv(varSpawnTimeout); text != "" {
			ms, err := strconv.ParseInt(text, 10, 32)
			if err != nil || ms < 1000 {
				errs = append(errs, fmt.Errorf("%s must be a number of milliseconds, at least 1000, got %q", varSpawnTimeout, text))
			}
			t.Scaler = t.Scaler.WithSpawnTimeout(time.Duration(ms) * time.Millisecond)
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	t.Fleet.AckWithin, t.Fleet.Grace = t.Dispatch.AckTimeout, t.Dispatch.RecoveryGrace
	return nil
}
