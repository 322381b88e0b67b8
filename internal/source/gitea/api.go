package gitea

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/forge"
)

// Bounds of what is written to and read from the API.
const (
	maxDescription = 255 // bytes; Gitea takes more, its pages do not show it
	hooksPerPage   = 50
	maxHookPages   = 20
)

// states are Gitea's words. It has none for running, which shows in the description.
var states = map[source.StatusState]string{
	source.StatusPending: "pending", source.StatusRunning: "pending", source.StatusSuccess: "success",
	source.StatusFailure: "failure", source.StatusError: "error",
}

// ReportStatus adds a line to the commit's history of this context, of which the last one counts.
func (Dialect) ReportStatus(ctx context.Context, api *forge.API, repo string, s source.CommitStatus) error {
	body := struct {
		State       string `json:"state"`
		TargetURL   string `json:"target_url"`
		Description string `json:"description"`
		Context     string `json:"context"`
	}{states[s.State], s.URL, forge.Cut(s.Description, maxDescription), s.Context}
	if body.State == "" {
		return fmt.Errorf("unknown state %q of a commit status", s.State)
	}
	err := api.Do(ctx, http.MethodPost, "/repos/"+repo+"/statuses/"+url.PathEscape(s.SHA), body, nil)
	if err != nil && strings.Contains(err.Error(), "object does not exist") { // a 500, which would look like a forge in trouble
		return fmt.Errorf("%w: commit %s is not at the forge any more", source.ErrNotFound, s.SHA)
	}
	return err
}

// events are those that Parse understands; pull_request stands for all of its kinds, among them new commits and comments.
var events = []string{"push", "pull_request", "issue_comment"}

type hook struct {
	ID            int64             `json:"id,omitempty"`
	Type          string            `json:"type"`
	Active        bool              `json:"active"`
	Config        map[string]string `json:"config"`
	Events        []string          `json:"events"`
	BranchFilter  string            `json:"branch_filter"`
	Authorization string            `json:"authorization_header"` // of a proxy before kici
}

// InstallHook replaces every hook with this address by a new one: Gitea neither shows the secret of a hook nor lets it be changed. The
// new one comes first, so that no push falls between; at worst one comes twice.
func (Dialect) InstallHook(ctx context.Context, api *forge.API, repo, address, secret string) error {
	if secret == "" {
		return fmt.Errorf("%w: the source has no webhook secret", source.ErrMisconfigured)
	}
	old, err := hooks(ctx, api, repo, address)
	if err != nil {
		return err
	}
	fresh := hook{Type: "gitea", Active: true, Events: events, Config: map[string]string{
		"url": address, "content_type": "json", "secret": secret,
	}}
	if len(old) > 0 {
		fresh.BranchFilter, fresh.Authorization = old[0].BranchFilter, old[0].Authorization
	}
	if err := api.Do(ctx, http.MethodPost, "/repos/"+repo+"/hooks", fresh, nil); err != nil {
		return err
	}
	for _, h := range old {
		if err := api.Do(ctx, http.MethodDelete, "/repos/"+repo+"/hooks/"+strconv.FormatInt(h.ID, 10), nil, nil); err != nil {
			return fmt.Errorf("the new webhook is there, but the old one could not be removed: %w", err)
		}
	}
	return nil
}

// hooks lists those with the address. Gitea's listing has no Link header, and a page may be shorter than asked for.
func hooks(ctx context.Context, api *forge.API, repo, address string) (found []hook, err error) {
	for page := 1; page <= maxHookPages; page++ {
		var list []hook
		path := fmt.Sprintf("/repos/%s/hooks?limit=%d&page=%d", repo, hooksPerPage, page)
		if err := api.Do(ctx, http.MethodGet, path, nil, &list); err != nil {
			return nil, err
		}
		if len(list) == 0 {
			return found, nil
		}
		for _, h := range list {
			if h.Config["url"] == address {
				found = append(found, h)
			}
		}
	}
	return found, nil
}

// DefaultBranch asks the API.
func (Dialect) DefaultBranch(ctx context.Context, api *forge.API, repo string) (string, error) {
	var r repository
	err := api.Do(ctx, http.MethodGet, "/repos/"+repo, nil, &r)
	return r.DefaultBranch, err
}
