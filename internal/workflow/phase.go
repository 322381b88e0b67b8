package workflow

import "github.com/kici-go/kici/internal/workflow/expr"

// The scopes of D8: when each field's expressions are evaluated, and what they may use there. docs/workflows.md prints
// this table; TestPhaseTable compares the two.
var (
	// Run creation: the event and the inputs are known, no job has run.
	scopeRun = expr.Scope{Phase: "when the run is created", Contexts: []string{"kici", "inputs"}}
	// Also run creation, but once per matrix combination.
	scopeRunJob = expr.Scope{Phase: "when the run is created", Contexts: []string{"kici", "inputs", "matrix"}}
	// Job ready: the jobs it needs have ended.
	scopeReady   = expr.Scope{Phase: "when the job becomes ready", Contexts: []string{"kici", "inputs", "matrix", "needs"}}
	scopeReadyIf = expr.Scope{Phase: scopeReady.Phase, Contexts: scopeReady.Contexts, Status: true}
	// On the agent, where secrets are.
	scopeEnv    = expr.Scope{Phase: "on the agent, before the first step", Contexts: []string{"kici", "inputs", "secrets"}}
	scopeJobEnv = expr.Scope{Phase: scopeEnv.Phase, Contexts: []string{"kici", "inputs", "matrix", "needs", "secrets"}}
	scopeStep   = expr.Scope{
		Phase: "on the agent, when the step starts", Files: true,
		Contexts: []string{"kici", "inputs", "matrix", "needs", "secrets", "env", "steps", "job", "runner"},
	}
	scopeStepIf  = expr.Scope{Phase: scopeStep.Phase, Contexts: scopeStep.Contexts, Files: true, Status: true}
	scopeOutputs = expr.Scope{Phase: "on the agent, after the last step", Contexts: scopeStep.Contexts, Files: true}
)

// kiciNames are the properties of the kici context; others are null, which is worth a warning.
var kiciNames = []string{
	"event_name", "ref", "ref_name", "ref_type", "sha", "repository", "repository_owner", "actor", "triggering_actor", "run_id",
	"run_number", "run_attempt", "workflow", "job", "event", "base_ref", "head_ref", "workspace", "server_url",
}
