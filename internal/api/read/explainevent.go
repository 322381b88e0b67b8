package read

import (
	"fmt"
	"strings"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/event"
)

// outcomeText says what an outcome means for people.
var outcomeText = map[string]string{
	event.OutcomeNoRegistration: "Nothing was started: no registered workflow has a trigger for such events. A push to the default branch of a repository registers its workflows.",
	event.OutcomeNoTarget:       "Nothing was started: workflows wait for such events, but none of them is where this one was addressed to.",
	event.OutcomeTrust:          "Nothing was started: the workflows that wait for it belong to other sources, and no trust lets events of this one pass. Allow it with: kici trust add",
	event.OutcomeNoTrigger:      "Nothing was started: workflows wait for events of this kind, but the filters of their triggers do not match this one.",
	event.OutcomeBuffered:       "Nothing was started yet: the failure waits, with others, for the event workflows_failed_batch.",
}

// explainEvent says in sentences where an event comes from and what became of it. hidden is how many of its runs the caller may not see.
func explainEvent(e client.Event, buffered bool, hidden int) []string {
	out := []string{emittedBy(e)}
	if len(e.TargetRepos) > 0 {
		out = append(out, "It is only for workflows of "+strings.Join(e.TargetRepos, ", ")+".")
	}
	if e.RegistrationID != "" {
		out = append(out, "It is only for the workflow registered as "+e.RegistrationID+".")
	}
	switch e.State {
	case event.StatePending:
		out = append(out, "It waits to be routed; that takes a moment, or a server that runs.")
	case event.StateLeased:
		out = append(out, fmt.Sprintf("Server %s is routing it (attempt %d).", e.HeldBy, e.Attempts))
	case event.StateRetrying:
		out = append(out, fmt.Sprintf("Attempt %d failed and it is tried again at %s: %s", e.Attempts, e.NextTryAt, e.Error))
	case event.StateDead:
		out = append(out, deadText(e))
	case event.StateProcessed:
		if text := outcomeText[e.Outcome]; text != "" {
			out = append(out, text)
		}
		if buffered && e.Outcome == event.OutcomeMatched {
			out = append(out, "The failure also waits, with others, for the event workflows_failed_batch.")
		}
	}
	for _, r := range e.Runs {
		out = append(out, fmt.Sprintf("It started %s of %s: run #%d is %s.", r.Workflow, r.Repo, r.Number, r.Status))
	}
	switch {
	case hidden == 1:
		out = append(out, "1 run that it started belongs to another source.")
	case hidden > 1:
		out = append(out, fmt.Sprintf("%d runs that it started belong to other sources.", hidden))
	}
	if n := e.Matched; n != nil && *n > int64(len(e.Runs)+hidden) {
		out = append(out, fmt.Sprintf("%d more runs that it started have been deleted since.", *n-int64(len(e.Runs)+hidden)))
	}
	return out
}

func emittedBy(e client.Event) string {
	from := ""
	if e.Repo != "" {
		from = " of " + e.Repo
	}
	link := ""
	if e.ChainDepth > 0 {
		link = fmt.Sprintf(" It is link %d of a chain of workflows that start each other.", e.ChainDepth)
	}
	switch {
	case e.Emitter == event.EmitterStep:
		return fmt.Sprintf("A step of run %s%s emitted it.%s", e.RunID, from, link)
	case e.Emitter == event.EmitterOperator && e.Actor != "":
		return e.Actor + " emitted it by hand." + link
	case e.Emitter == event.EmitterOperator:
		return "It was emitted by hand." + link
	case e.RunID != "":
		return fmt.Sprintf("kici emitted it because of run %s%s.%s", e.RunID, from, link)
	}
	return "kici emitted it by itself." + link
}

func deadText(e client.Event) string {
	what := fmt.Sprintf("It is a dead letter: %d attempts failed, the last one with: %s", e.Attempts, e.Error)
	if e.DeadReason == event.DeadNotRetryable {
		what = "It is a dead letter, because repeating does not mend what stood against it: " + e.Error
	}
	return what + " Once that is mended: kici event dlq retry " + e.ID
}
