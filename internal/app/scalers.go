package app

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/scaler"
	"github.com/kici-go/kici/internal/service"
)

// lookAtScalers is how often scalers.yaml and its fragments are looked at. A change is taken up when the files have been the same for
// one look, so that none is read while it is written.
const lookAtScalers = 2 * time.Second

// loadScalers reads scalers.yaml.
func (s *Server) loadScalers() (*scaler.Config, []scaler.Problem) {
	return scaler.LoadConfig(s.scalerFile, scaler.LoadOptions{Dir: s.o.ScalerDir, Kinds: s.kinds()})
}

// watchScalers takes up what is written into scalers.yaml.
func (s *Server) watchScalers(ctx context.Context) error {
	used := s.scalerPrint
	last := used
	return service.Loop{Name: "scaler configuration", Interval: lookAtScalers, Log: s.log, Tick: func(ctx context.Context) error {
		now := scaler.Fingerprint(s.scalerFile, s.o.ScalerDir)
		settled := now == last
		if last = now; settled && now != used {
			used = now
			s.log.Info("scalers.yaml has changed", "component", "scaler")
			s.ReloadScalers(ctx, false)
		}
		return nil
	}}.Run(ctx)
}

// ReloadScalers reads scalers.yaml again and takes it up, or with dryRun says what it would change. The outcome is logged, too.
func (s *Server) ReloadScalers(ctx context.Context, dryRun bool) client.ScalerReload {
	plan, problems, err := s.node.Reload(ctx, dryRun)
	if !dryRun {
		s.warnScalers(problems)
	}
	out := client.ScalerReload{
		Node: s.data.InstanceID(), NodeName: hostName(), File: s.scalerFile, DryRun: dryRun, Applied: err == nil && !dryRun && !plan.Empty(),
		Changes: []client.ScalerChange{}, Problems: []client.ScalerProblem{},
	}
	if err != nil {
		out.Refused = refusal(plan, err)
	}
	for _, c := range plan.Changes {
		change := client.ScalerChange{Name: c.Name, Type: c.Type, Change: string(c.Kind), Reason: c.Reason}
		for _, f := range c.Fields {
			change.Fields = append(change.Fields, client.ScalerField{Key: f.Key, Old: f.Old, New: f.New, Restart: f.Restart})
		}
		out.Changes = append(out.Changes, change)
	}
	for _, p := range problems {
		out.Problems = append(out.Problems, scalerProblem(p))
	}
	return out
}

// refusal is why nothing applies, without what the problems say by themselves.
func refusal(plan scaler.ReloadPlan, err error) string {
	var problem scaler.Problem
	if errors.As(err, &problem) {
		return "the file is not valid"
	}
	if text := plan.Refused(); text != "" {
		return text
	}
	return err.Error()
}

func scalerProblem(p scaler.Problem) client.ScalerProblem {
	return client.ScalerProblem{File: p.File, Line: p.Line, Column: p.Col, Path: p.Path, Message: p.Message, Cure: p.Cure, Warning: p.Warning}
}

func (s *Server) warnScalers(problems []scaler.Problem) {
	for _, p := range problems {
		if p.Warning {
			s.log.Warn("scalers.yaml", "component", "scaler", "problem", p.Error())
		}
	}
}

// validateScalers is "kici scaler validate".
func validateScalers(file, dir string) (read string, scalers []string, problems []client.ScalerProblem) {
	if file == "" {
		file = scalerPath(os.Getenv("KICI_SCALER_CONFIG_PATH"), cmp.Or(os.Getenv("KICI_DATA_DIR"), existingDataDir()))
	}
	config, found := scaler.LoadConfig(file, scaler.LoadOptions{Dir: cmp.Or(dir, os.Getenv("KICI_SCALER_CONFIG_DIR")), Kinds: backendKinds()})
	scalers, problems = []string{}, []client.ScalerProblem{}
	for _, p := range found {
		problems = append(problems, scalerProblem(p))
	}
	if config != nil {
		for _, e := range config.Scalers {
			scalers = append(scalers, e.Name)
		}
	}
	return file, scalers, problems
}
