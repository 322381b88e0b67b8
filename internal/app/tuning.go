package app

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/kici-go/kici/internal/dispatch"
	"github.com/kici-go/kici/internal/fleet"
	"github.com/kici-go/kici/internal/git"
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

	MirrorMax int64 // bytes of the mirror of one repository on a forge (varMirrorMax)
}

func defaultTuning() Tuning {
	return Tuning{
		Run: run.DefaultSettings(), Dispatch: dispatch.DefaultSettings(), Fleet: fleet.DefaultSettings(),
		Scaler: scaler.DefaultSettings(), StopIn: 20 * time.Second, DiskFail: diskFail, DiskWarn: diskWarn,
		MirrorMax: git.DefaultMirrorBytes,
	}
}

// varMirrorMax sets Tuning.MirrorMax.
const varMirrorMax = "KICI_MIRROR_MAX_BYTES"

func (t *Tuning) overlayMirror(getenv func(string) string) error {
	text := getenv(varMirrorMax)
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1<<20 {
		return fmt.Errorf("%s must be a number of bytes, at least %d, got %q", varMirrorMax, 1<<20, text)
	}
	t.MirrorMax = n
	return nil
}

// overlay sets what the environment says, and what two rooms must agree on.
func (t *Tuning) overlay(getenv func(string) string) error {
	if getenv != nil {
		if err := errors.Join(t.Run.Overlay(getenv), t.Dispatch.Overlay(getenv), t.Scaler.Overlay(getenv), t.overlayMirror(getenv)); err != nil {
			return err
		}
	}
	t.Fleet.AckWithin, t.Fleet.Grace = t.Dispatch.AckTimeout, t.Dispatch.RecoveryGrace
	return nil
}

// roomVariables names the variables of the rooms.
func roomVariables() []string {
	return slices.Concat(run.Variables(), dispatch.Variables(), scaler.Variables(), []string{varMirrorMax})
}
