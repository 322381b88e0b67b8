package gitlab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/forge"
)

// maxDescription is GitLab's bound in characters; bytes are never fewer.
const maxDescription = 255

// states are GitLab's words. An error that is not the workflow's fault is not failed there.
var states = map[source.StatusState]string{
	source.StatusPending: "pending", source.StatusRunning: "running", source.StatusSuccess: "success",
	source.StatusFailure: "failed", source.StatusError: "canceled",
}

func project(repo string) string { return "/projects/" + url.PathEscape(repo) }

// ReportStatus moves the commit's status of this name. GitLab refuses to move one to where it already is, which is no error here.
func (Dialect) ReportStatus(ctx context.Context, api *forge.API, repo string, s source.CommitStatus) error {
	body := struct {
		State       string `json:"state"`
		Name        string `json:"name"`
		TargetURL   string `json:"target_url,omitempty"`
		Description string `json:"description"`
	}{states[s.State], s.Context, s.URL, forge.Cut(s.Description, maxDescription)}
	if body.State == "" {
		return fmt.Errorf("unknown state %q of a commit status", s.State)
	}
	err := api.Do(ctx, http.MethodPost, project(repo)+"/statuses/"+url.PathEscape(s.SHA), body, nil)
	if err != nil && strings.Contains(err.Error(), "Cannot transition status") {
		return nil
	}
	return err
}

// hook is what is asked for; other settings of an existing one stay.
type hook struct {
	ID            int64  `json:"id,omitempty"`
	URL           string `json:"url"`
	Token         string `json:"token,omitempty"`
	Push          bool   `json:"push_events"`
	TagPush       bool   `json:"tag_push_events"`
	MergeRequests bool   `json:"merge_requests_events"`
	Notes         bool   `json:"note_events"`
}

// InstallHook brings the project's webhook with this address up to date, or makes one. Of several with the address one stays.
func (Dialect) InstallHook(ctx context.Context, api *forge.API, repo, address, secret string) error {
	if secret == "" {
		return fmt.Errorf("%w: the source has no webhook secret", source.ErrMisconfigured)
	}
	old, err := hooks(ctx, api, repo, address)
	if err != nil {
		return err
	}
	fresh := hook{URL: address, Token: secret, Push: true, TagPush: true, MergeRequests: true, Notes: true}
	if len(old) == 0 {
		return api.Do(ctx, http.MethodPost, project(repo)+"/hooks", fresh, nil)
	}
	if err := api.Do(ctx, http.MethodPut, hookPath(repo, old[0]), fresh, nil); err != nil {
		return err
	}
	for _, h := range old[1:] {
		if err := api.Do(ctx, http.MethodDelete, hookPath(repo, h), nil, nil); err != nil {
			return fmt.Errorf("the webhook is up to date, but another with its address could not be removed: %w", err)
		}
	}
	return nil
}

func hookPath(repo string, h hook) string { return fmt.Sprintf("%s/hooks/%d", project(repo), h.ID) }

func hooks(ctx context.Context, api *forge.API, repo, address string) (found []hook, err error) {
	err = api.List(ctx, project(repo)+"/hooks?per_page=100", func(raw json.RawMessage) (bool, error) {
		var list []hook
		if err := json.Unmarshal(raw, &list); err != nil {
			return false, fmt.Errorf("list of webhooks: %w", err)
		}
		for _, h := range list {
			if h.URL == address {
				found = append(found, h)
			}
		}
		return true, nil
	})
	return found, err
}

// DefaultBranch asks the API.
func (Dialect) DefaultBranch(ctx context.Context, api *forge.API, repo string) (string, error) {
	var p struct {
		DefaultBranch string `json:"default_branch"`
	}
	err := api.Do(ctx, http.MethodGet, project(repo), nil, &p)
	return p.DefaultBranch, err
}
