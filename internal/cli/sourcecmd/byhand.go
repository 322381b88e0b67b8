package sourcecmd

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// byHand says how to make a source's webhook in the forge's own pages.
func byHand(c *console.Console, s client.Source, secret string) {
	page := hookPage(s)
	if secret == "" {
		secret = fmt.Sprintf("what \"kici source webhook-secret %s\" prints", s.Name)
	}
	step := func(n int, format string, args ...any) {
		c.Notice("  %d. %s", n, console.CleanLine(fmt.Sprintf(format, args...)))
	}
	c.Notice("or by hand:")
	switch s.Kind {
	case "github":
		step(1, "open %s", page)
		step(2, "Payload URL: %s · Content type: application/json · Secret: %s", s.WebhookURL, secret)
		step(3, "choose \"Send me everything\" (or pushes, pull requests, issue comments) and press \"Add webhook\"")
	case "gitea":
		step(1, "open %s", page)
		step(2, "Target URL: %s · POST Content Type: application/json · Secret: %s", s.WebhookURL, secret)
		step(3, "Trigger On: \"All Events\" (or push, create, pull request, comments) and press \"Add Webhook\"")
	case "gitlab":
		step(1, "open %s and press \"Add new webhook\"", page)
		step(2, "URL: %s · Secret token: %s", s.WebhookURL, secret)
		step(3, "check push events, tag push events, comments and merge request events, and press \"Add webhook\"")
	}
}

// hookPage is the page of the forge where webhooks are made.
func hookPage(s client.Source) string {
	var o struct {
		URL string `json:"url"`
	}
	_ = json.Unmarshal(s.Config, &o) // made by the server
	base := o.URL
	if base == "" {
		base = map[string]string{"github": "https://github.com", "gitlab": "https://gitlab.com", "gitea": "https://gitea.com"}[s.Kind]
	}
	tail := map[string]string{"github": "settings/hooks/new", "gitea": "settings/hooks/gitea/new", "gitlab": "-/hooks"}[s.Kind]
	page, err := url.JoinPath(base, append(strings.Split(s.Repo, "/"), tail)...)
	if err != nil {
		return base
	}
	return page
}
