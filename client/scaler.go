package client

import "context"

// ScalerReload is what reading scalers.yaml again did, or would do.
type ScalerReload struct {
	Node     string          `json:"node"`     // the server that was asked; each has a file of its own
	NodeName string          `json:"nodeName"` //
	File     string          `json:"file"`
	DryRun   bool            `json:"dryRun"`
	Applied  bool            `json:"applied"`           // all of it; false for a dry run, one without a change, and one that was refused
	Refused  string          `json:"refused,omitempty"` // why nothing of it applies
	Changes  []ScalerChange  `json:"changes"`
	Problems []ScalerProblem `json:"problems"`
}

// ScalerChange is what becomes of one scaler, or with an empty name of the top level.
type ScalerChange struct {
	Name   string        `json:"name"`
	Type   string        `json:"type,omitempty"`
	Change string        `json:"change"` // added, kept, resurrected, retired, refused
	Fields []ScalerField `json:"fields,omitempty"`
	Reason string        `json:"reason,omitempty"` // of one that is refused
}

// ScalerField is one key that has another value. Values of variables are not shown.
type ScalerField struct {
	Key     string `json:"key"`
	Old     string `json:"old"`
	New     string `json:"new"`
	Restart bool   `json:"restart,omitempty"` // the old one stays until the server is started again
}

// ScalerProblem is something wrong in the file.
type ScalerProblem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	Cure    string `json:"cure,omitempty"`
	Warning bool   `json:"warning,omitempty"`
}

// ReloadScalers makes the server that answers read scalers.yaml again, all of it or nothing. With dryRun it only says what would change.
func (c *Client) ReloadScalers(ctx context.Context, dryRun bool) (out ScalerReload, err error) {
	return out, c.post(ctx, admin+"/scaler/reload", map[string]bool{"dryRun": dryRun}, &out)
}
