package github

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/forge"
)

// maxDescription is what GitHub takes as a status' description.
const maxDescription = 140

// ReportStatus implements forge.Dialect.
func (Dialect) ReportStatus(ctx context.Context, api *forge.API, repo string, s source.CommitStatus) error {
	state := s.State
	if state == source.StatusRunning {
		state = source.StatusPending
	}
	return api.Do(ctx, http.MethodPost, "/repos/"+repo+"/statuses/"+s.SHA, struct {
		State       source.StatusState `json:"state"`
		TargetURL   string             `json:"target_url,omitempty"`
		Description string             `json:"description,omitempty"`
		Context     string             `json:"context"`
	}{state, s.URL, forge.Cut(s.Description, maxDescription), s.Context}, nil)
}

// DefaultBranch implements forge.Dialect.
func (Dialect) DefaultBranch(ctx context.Context, api *forge.API, repo string) (string, error) {
	var r struct {
		DefaultBranch string `json:"default_branch"`
	}
	err := api.Do(ctx, http.MethodGet, "/repos/"+repo, nil, &r)
	return r.DefaultBranch, err
}

type hook struct {
	ID     int64      `json:"id,omitempty"`
	Name   string     `json:"name"`
	Active bool       `json:"active"`
	Events []string   `json:"events"`
	Config hookConfig `json:"config"`
}

type hookConfig struct {
	URL         string `json:"url"`
	ContentType string `json:"content_type"`
	Secret      string `json:"secret,omitempty"`
	InsecureSSL string `json:"insecure_ssl"`
}

// InstallHook implements forge.Dialect.
func (Dialect) InstallHook(ctx context.Context, api *forge.API, repo, address, secret string) error {
	id, err := findHook(ctx, api, repo, address)
	if err != nil {
		return err
	}
	want := hook{
		Name: "web", Active: true, Events: []string{"push", "pull_request", "issue_comment", "pull_request_review_comment"},
		Config: hookConfig{URL: address, ContentType: "json", Secret: secret, InsecureSSL: "0"},
	}
	method, path := http.MethodPost, "/repos/"+repo+"/hooks"
	if id != 0 {
		method, path = http.MethodPatch, path+"/"+strconv.FormatInt(id, 10)
	}
	return api.Do(ctx, method, path, want, nil)
}

// findHook returns the id of the hook that sends to address, 0 for none.
func findHook(ctx context.Context, api *forge.API, repo, address string) (int64, error) {
	var id int64
	err := api.List(ctx, "/repos/"+repo+"/hooks?per_page=100", func(raw json.RawMessage) (bool, error) {
		var page []hook
		if err := json.Unmarshal(raw, &page); err != nil {
			return false, fmt.Errorf("list of webhooks: %w", err)
		}
		for _, h := range page {
			if h.Config.URL == address {
				id = h.ID
			}
		}
		return id == 0, nil
	})
	return id, err
}

// attempt is one try to deliver; those of one delivery share the GUID.
type attempt struct {
	ID          int64     `json:"id"`
	GUID        string    `json:"guid"`
	DeliveredAt time.Time `json:"delivered_at"`
	StatusCode  int       `json:"status_code"`
	Event       string    `json:"event"`
}

// Missed implements forge.Redelivers. GitHub lists the newest first, and keeps deliveries for a few days.
func (Dialect) Missed(ctx context.Context, api *forge.API, repo, address string, since time.Time, limit int) ([]source.MissedDelivery, error) {
	id, err := findHook(ctx, api, repo, address)
	if err != nil {
		return nil, err
	}
	if id == 0 {
		return nil, fmt.Errorf("%w: repository %s has no webhook that sends to %s; install it", source.ErrNotFound, repo, address)
	}
	deliveries := fmt.Sprintf("/repos/%s/hooks/%d/deliveries", repo, id)
	missed, delivered := map[string]source.MissedDelivery{}, map[string]bool{}
	err = api.List(ctx, deliveries+"?per_page=100", func(raw json.RawMessage) (bool, error) {
		var page []attempt
		if err := json.Unmarshal(raw, &page); err != nil {
			return false, fmt.Errorf("list of deliveries: %w", err)
		}
		for _, a := range page {
			if a.DeliveredAt.Before(since) {
				return false, nil
			}
			if a.StatusCode >= 200 && a.StatusCode < 300 {
				delivered[a.GUID] = true
			}
			missed[a.GUID] = source.MissedDelivery{ID: fmt.Sprintf("%d/%d", id, a.ID), GUID: a.GUID, Event: a.Event, At: a.DeliveredAt}
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	var out []source.MissedDelivery
	for guid, m := range missed {
		if !delivered[guid] {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b source.MissedDelivery) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.GUID, b.GUID))
	})
	return out[:min(limit, len(out))], nil
}

// Redeliver implements forge.Redelivers. id is <webhook>/<attempt>, as Missed gives it.
func (Dialect) Redeliver(ctx context.Context, api *forge.API, repo, id string) error {
	hookID, attemptID, _ := strings.Cut(id, "/")
	h, herr := strconv.ParseInt(hookID, 10, 64)
	a, aerr := strconv.ParseInt(attemptID, 10, 64)
	if herr != nil || aerr != nil {
		return fmt.Errorf("%w: delivery %q", source.ErrNotFound, source.Bound(id, 100))
	}
	return api.Do(ctx, http.MethodPost, fmt.Sprintf("/repos/%s/hooks/%d/deliveries/%d/attempts", repo, h, a), nil, nil)
}

var (
	_ forge.Dialect    = Dialect{}
	_ forge.Redelivers = Dialect{}
)
