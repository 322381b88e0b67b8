package ci

import "encoding/json"

// Event is one normalised fact that may start runs: a push, a pull request, a dispatch, a generic delivery, an
// internal event. Sources make it from a delivery; triggers are matched against it.
type Event struct {
	Type   string `json:"type"`             // the lock's trigger name: push, tag, pr, dispatch, generic_webhook, kici_event, schedule, workflow_complete, …
	Action string `json:"action,omitempty"` // opened, synchronize, …
	Name   string `json:"name,omitempty"`   // event name of generic_webhook and kici_event
	Source string `json:"source,omitempty"` // name of the source that delivered it

	Repo          string `json:"repo,omitempty"` // repository identifier (DOM-3)
	Ref           string `json:"ref,omitempty"`  // full ref: refs/heads/main, refs/tags/v1
	Branch        string `json:"branch,omitempty"`
	Tag           string `json:"tag,omitempty"`
	SHA           string `json:"sha,omitempty"`    // the commit to run
	Before        string `json:"before,omitempty"` // previous tip of a push
	DefaultBranch string `json:"defaultBranch,omitempty"`
	Deleted       bool   `json:"deleted,omitempty"` // the ref was deleted: nothing to run

	TargetBranch string `json:"targetBranch,omitempty"` // pull request: base
	SourceBranch string `json:"sourceBranch,omitempty"` // pull request: head
	BaseSHA      string `json:"baseSha,omitempty"`
	Number       int64  `json:"number,omitempty"` // pull request number
	Fork         bool   `json:"fork,omitempty"`

	Comment   string `json:"comment,omitempty"`   // text of a comment
	CommentOn string `json:"commentOn,omitempty"` // issue or pr

	ChangedFiles    []string `json:"changedFiles,omitempty"`
	ChangedFilesErr string   `json:"changedFilesError,omitempty"` // why the list is unknown (WF-15)

	Actor   string          `json:"actor,omitempty"`
	Title   string          `json:"title,omitempty"` // first line of the commit message, or the request's title
	Inputs  map[string]any  `json:"inputs,omitempty"`
	Payload json.RawMessage `json:"payload,omitempty"` // what the sender sent, as JSON
}

// TrustTier of a run (DOM-9). Absent means least privilege.
type TrustTier string

// The tiers.
const (
	TierTrusted TrustTier = "trusted"
	TierUnknown TrustTier = "unknown"
)
