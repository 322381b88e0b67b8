package source

import "net/url"

// The kinds of sources whose repository lives on a forge.
const (
	KindGitHub = "github"
	KindGitea  = "gitea" // Forgejo too
	KindGitLab = "gitlab"
)

// OnForge reports whether sources of a kind have their repository on a forge.
func OnForge(kind string) bool { return kind == KindGitHub || kind == KindGitea || kind == KindGitLab }

// WebhookPath is where a source's deliveries are posted to, below the server's address (ING-7, ING-8).
func WebhookPath(kind, orgID, name string) string {
	folder := "generic"
	if kind == KindGitHub {
		folder = KindGitHub
	}
	return "/webhook/" + url.PathEscape(orgID) + "/" + folder + "/" + url.PathEscape(name)
}

// TriggerHeader marks the push deliveries that kici makes itself, whose body is a Payload: "api" for `kici source trigger`, "gap"
// for a push that the forge did not deliver. Of what comes from outside it is removed, whatever the sender says.
const TriggerHeader = "x-kici-trigger"

// What TriggerHeader says.
const (
	TriggerAPI = "api"
	TriggerGap = "gap"
)
