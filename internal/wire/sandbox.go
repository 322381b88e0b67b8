package wire

// SandboxCheck is the argument by which this program tries a sandbox, in a folder and with a network that follow, and prints the report.
const SandboxCheck = "sandbox-check"

// SandboxReport says what a sandbox enforces, and what it cannot, in sentences for people. A node has one made by a trial, in the user that
// agents run as.
type SandboxReport struct {
	Enforced []string `json:"enforced"`
	Missing  []string `json:"missing,omitempty"`
	// Private says that /tmp is the job's own folder. Without it /tmp is closed, and the folder is there by its own name.
	Private bool `json:"private"`
}
