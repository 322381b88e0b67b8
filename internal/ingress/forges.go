package ingress

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// ForgeSource describes a repository on a forge. Options are forge.Options as JSON.
type ForgeSource struct {
	OrgID, Name, Kind string // kind: github, gitea, gitlab
	Options           json.RawMessage
	Token             string // for the API and HTTPS clones; "" for a public repository without statuses
	SSHKey            string // for SSH clones
	Secret            string // what the forge signs with; "" makes one
}

// AddForge stores a source. The forge need not be reachable (D23); one repository has one source.
func (c *Catalog) AddForge(ctx context.Context, f ForgeSource) (Added, error) {
	if !source.OnForge(f.Kind) {
		return Added{}, invalid("kind is %s, %s or %s, not %q", source.KindGitHub, source.KindGitea, source.KindGitLab, f.Kind)
	}
	row := db.Source{OrgID: f.OrgID, Kind: f.Kind, Name: f.Name, Config: string(f.Options)}
	row.Repo = placeOf(f.Kind, row.Config).repo
	if row.Repo == "" {
		return Added{}, invalid("options.repository is required: owner/name")
	}
	return c.add(ctx, row, map[string]string{
		source.SecretWebhook: f.Secret, source.SecretToken: f.Token, source.SecretSSHKey: f.SSHKey,
	})
}

// place is where a repository lives.
type place struct{ kind, url, repo string }

// placeOf reads what every forge's options have; what is wrong with them the factory says.
func placeOf(kind, options string) place {
	var o struct {
		URL        string `json:"url"`
		Repository string `json:"repository"`
	}
	_ = json.Unmarshal([]byte(options), &o)
	if o.URL == "" {
		o.URL = map[string]string{source.KindGitHub: "https://github.com", source.KindGitLab: "https://gitlab.com"}[kind]
	}
	return place{kind, o.URL, o.Repository}
}

func (p place) same(o place) bool {
	url := func(s string) string { return strings.ToLower(strings.TrimRight(s, "/")) }
	return p.kind == o.kind && strings.EqualFold(p.repo, o.repo) && url(p.url) == url(o.url)
}

// onlyOne refuses a second source of the same repository: each push would run twice. It is a help, not a lock: two requests at
// the same instant may both pass.
func onlyOne(ctx context.Context, tx *store.Tx, row db.Source) error {
	if !source.OnForge(row.Kind) {
		return nil
	}
	others, err := tx.SourceList(ctx, row.OrgID)
	if err != nil {
		return err
	}
	for _, o := range others {
		if o.ID != row.ID && placeOf(o.Kind, o.Config).same(placeOf(row.Kind, row.Config)) {
			return &conflictError{fmt.Sprintf("%s is source %s already; change it with `kici source update %s`", row.Repo, o.Name, o.Name)}
		}
	}
	return nil
}

// conflictError is an ErrExists with its own sentence.
type conflictError struct{ message string }

// Error implements error.
func (e *conflictError) Error() string { return e.message }

// Is makes it ErrExists.
func (e *conflictError) Is(target error) bool { return target == ErrExists }

// moved prepares a change of where a repository lives: the other one's registrations and branches are not its own.
func (c *Catalog) moved(ctx context.Context, tx *store.Tx, old, next db.Source) error {
	if !source.OnForge(old.Kind) {
		return nil
	}
	if placeOf(old.Kind, old.Config).same(placeOf(next.Kind, next.Config)) {
		_, err := tx.HastenSourcePoll(ctx, tx.Now(), old.ID)
		return err
	}
	if err := onlyOne(ctx, tx, next); err != nil {
		return err
	}
	if err := c.d.Registrations.Forget(ctx, tx, old.OrgID, old.RoutingKey); err != nil {
		return err
	}
	return forgetHeads(ctx, tx, old.ID)
}

// forgetHeads makes the next look at a source its first one: nothing before it was missed.
func forgetHeads(ctx context.Context, tx *store.Tx, id string) error {
	if _, err := tx.ForgetSourceHeads(ctx, id); err != nil {
		return err
	}
	_, err := tx.RestartSourcePoll(ctx, tx.Now(), id)
	return err
}

// checkSecrets says what is wrong with a source's secrets.
func checkSecrets(kind string, secrets map[string]string) (errs []error) {
	if s := secrets[source.SecretWebhook]; s != "" && len(s) < minSecret {
		errs = append(errs, fmt.Errorf("the secret must have at least %d characters", minSecret))
	}
	token, key := secrets[source.SecretToken], secrets[source.SecretSSHKey]
	if (token != "" || key != "") && !source.OnForge(kind) {
		errs = append(errs, fmt.Errorf("a %s source takes neither token nor SSH key", kind))
	}
	if len(token) > maxToken || strings.ContainsAny(token, " \t\r\n\x00") {
		errs = append(errs, fmt.Errorf("the token must be one word of at most %d characters", maxToken))
	}
	if key != "" && (len(key) > maxSSHKey || !strings.HasPrefix(strings.TrimSpace(key), "-----BEGIN ")) {
		errs = append(errs, fmt.Errorf("the SSH key must be a private key in OpenSSH's or PEM form (-----BEGIN …), at most %d bytes", maxSSHKey))
	}
	return errs
}

// warnings are what will keep a source on a forge from working, as far as can be told from here.
func (c *Catalog) warnings(row db.Source, secrets map[string]string) []string {
	if !source.OnForge(row.Kind) {
		return nil
	}
	var out []string
	address := c.WebhookURL(row.Kind, row.OrgID, row.Name)
	forge := placeOf(row.Kind, row.Config).url
	if isLoopback(address) && !isLoopback(forge) {
		out = append(out, fmt.Sprintf("the forge cannot reach %s: start the server with --public-url https://ADDRESS, by which the forge reaches it; until then pushes are found by looking every few minutes", address))
	}
	if secrets[source.SecretToken] == "" {
		out = append(out, fmt.Sprintf("it has no token: results are not shown beside commits, and the webhook must be made by hand; give it one with `kici source set-token %s`", row.Name))
	}
	return out
}

// isLoopback reports whether an address is of this machine only.
func isLoopback(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
