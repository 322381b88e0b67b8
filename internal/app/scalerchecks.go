package app

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/diagnose"
)

// checkScalers has a row for each scaler (OP-13). Those of this server are looked at on their host; of another server's only the ledger is
// known here.
func (s *Server) checkScalers(ctx context.Context, reads *read.Reads, all read.Scope) []diagnose.Row {
	list, err := reads.Scalers(ctx, all)
	if err != nil {
		return []diagnose.Row{{Name: "scalers", Finding: diagnose.Failed("look at the database", "%v", err)}}
	}
	if len(list.Scalers) == 0 {
		return []diagnose.Row{{Name: "scalers", Finding: diagnose.Passed("there are none: agents are started by hand")}}
	}
	rows := make([]diagnose.Row, len(list.Scalers))
	var group sync.WaitGroup
	for i, x := range list.Scalers {
		rows[i].Name = scalerRow(list.Scalers, i)
		group.Go(func() {
			var facts []string
			var wrong error
			if x.Node == s.data.InstanceID() {
				facts, wrong = s.node.Examine(ctx, x.Name)
			}
			rows[i].Finding = judgeScaler(x, facts, wrong)
		})
	}
	group.Wait()
	return rows
}

// scalerRow names a row; a name that several servers have says whose it is.
func scalerRow(all []client.Scaler, i int) string {
	for k, x := range all {
		if k != i && x.Name == all[i].Name {
			return "scaler:" + all[i].Name + " on " + all[i].NodeName
		}
	}
	return "scaler:" + all[i].Name
}

// maxCheckError is what a row has of an error (OP-13).
const maxCheckError = 120

// judgeScaler is the row of a scaler: what its host lacks and launches for jobs that fail are failures, launches for warm pools that fail and
// scalers that are deferred are warnings.
func judgeScaler(x client.Scaler, facts []string, wrong error) diagnose.Finding {
	parts := []string{x.State}
	if x.State != "node lost" {
		parts = append(parts, fmt.Sprintf("%d/%d agents", x.ActiveCount, x.MaxAgents))
	}
	parts = append(parts, facts...)
	say := func(more string) string { return strings.Join(append(parts, more), ", ") }
	last := ""
	if len(x.Failures) > 0 {
		last = ", last: " + clip(x.Failures[0].Error)
	}
	const look = "kici scaler list --failures"
	switch {
	case wrong != nil:
		return diagnose.Failed("put that right on "+x.NodeName+"; the scaler tries again by itself", "%s", say(clip(wrong.Error())))
	case x.State == "not ready":
		return diagnose.Failed("put that right on "+x.NodeName+"; the scaler tries again by itself", "%s", say(clip(x.StateText)))
	case x.FailedBound > 0:
		return diagnose.Failed(look, "%s", say(fmt.Sprintf("%d failed in 5 minutes for jobs%s", x.FailedBound, last)))
	case x.FailedWarm > 0:
		return diagnose.Warned(look, "%s", say(fmt.Sprintf("%d failed in 5 minutes for warm pools%s", x.FailedWarm, last)))
	case x.State == "backing off":
		return diagnose.Warned(look, "%s", say(clip(x.StateText)))
	case x.State == "node lost":
		return diagnose.Warned("look at that server", "%s", say(x.StateText))
	}
	return diagnose.Passed("%s", strings.Join(parts, ", "))
}

// clip cuts an error to a line's length.
func clip(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) <= maxCheckError {
		return text
	}
	return string([]rune(text)[:maxCheckError-1]) + "…"
}
