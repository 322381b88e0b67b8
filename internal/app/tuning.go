package app

import (
	"errors"
	"slices"
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
	DiskFail int64         // free bytes below which /ready fails
	DiskWarn int64         // … and below which it warns
}

func defaultTuning() Tuning {
	return Tuning{
		Run: run.DefaultSettings(), Dispatch: dispatch.DefaultSettings(), Fleet: fleet.DefaultSettings(),
		Scaler: scaler.DefaultSettings(), StopIn: 20 * time.Second, DiskFail: diskFail, DiskWarn: diskWarn,
	}
}

// overlay sets what the environment says, and what two rooms must agree on.
func (t *Tuning) overlay(getenv func(string) string) error {
	if getenv != nil {
		if err := errors.Join(t.Run.Overlay(getenv), t.Dispatch.Overlay(getenv), t.Scaler.Overlay(getenv)); err != nil {
			return err
		}
	}
	t.Fleet.AckWithin, t.Fleet.Grace = t.Dispatch.AckTimeout, t.Dispatch.RecoveryGrace
	return nil
}

// roomVariables names the variables of the rooms.
func roomVariables() []string {
	return slices.Concat(run.Variables(), dispatch.Variables(), scaler.Variables())
}
