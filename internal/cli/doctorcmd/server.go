package doctorcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/diagnose"
)

// remote asks one server.
type remote struct {
	c   *console.Console
	url string
	api *client.Client // nil without a token
	why error          // why not
}

// server are the checks over HTTP. Each finds out by itself that nobody answers, so that they can run side by side.
func server(c *console.Console) []diagnose.Check {
	r := &remote{c: c, url: c.ServerURL()}
	r.api, r.why = c.Client()
	return []diagnose.Check{
		asker("server", r.health),
		asker("ready", r.ready),
		asker("clock", r.clock),
		asker("protocol", r.protocol),
		asker("token", r.token),
		{Name: "scalers", Rows: r.scalerRows},
		r.authorized("queue", r.queue),
		r.authorized("sources", r.sources),
		r.authorized("public URL", r.publicURL),
	}
}

// fetch gets a page that needs no token.
func (r *remote) fetch(ctx context.Context, path string) (status int, date string, body map[string]any, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path, nil)
	if err != nil {
		return 0, "", nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return 0, "", nil, err
	}
	_ = json.Unmarshal(text, &body) // what is no JSON is not kici's
	return resp.StatusCode, resp.Header.Get("Date"), body, nil
}

func (r *remote) health(ctx context.Context) diagnose.Finding {
	status, _, body, err := r.fetch(ctx, "/health")
	version, _ := body["version"].(string)
	switch {
	case err != nil:
		return diagnose.Failed(r.startCure(), "%s does not answer: %s", r.url, plain(err))
	case body["status"] != "ok":
		return diagnose.Failed("stop what listens there, or give the server another --port, and name it with --server or KICI_URL",
			"something answers at %s (status %d) that is no kici server", r.url, status)
	case version != or(r.c.Version, "dev"):
		return diagnose.Passed("%s answers: kici %s (this program is %s)", r.url, version, or(r.c.Version, "dev"))
	}
	return diagnose.Passed("%s answers: kici %s", r.url, version)
}

func (r *remote) startCure() string {
	if u, err := url.Parse(r.url); err == nil {
		if ip := net.ParseIP(u.Hostname()); u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
			return `start one with "kici server", or name the one you mean with --server or KICI_URL`
		}
	}
	return `check the address; it comes from --server, KICI_URL or "kici login"`
}

// plain is the innermost sentence of a network error.
func plain(err error) string {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	if strings.Contains(err.Error(), "refused") {
		return "nothing listens there"
	}
	return err.Error()
}

const unreachable = "the server does not answer"

func (r *remote) ready(ctx context.Context) diagnose.Finding {
	status, _, body, err := r.fetch(ctx, "/ready")
	switch {
	case err != nil:
		return diagnose.Skipped(unreachable)
	case status == http.StatusOK && body["warnings"] != nil:
		return diagnose.Warned("make room on the disk", "the server takes work in, but warns of: %v", body["warnings"])
	case status == http.StatusOK && body["ready"] == true:
		return diagnose.Passed("the server takes work in")
	case body["failing"] != nil:
		return diagnose.Failed("look at the server's log", "the server takes no work in: %v", body["failing"])
	}
	return diagnose.Failed("look at the server's log", "/ready answers %d", status)
}

// Clocks further apart than that make tokens, cookies and times on pages wrong. The header tells whole seconds.
const (
	clockWarn = 5 * time.Second
	clockFail = 5 * time.Minute
)

func (r *remote) clock(ctx context.Context) diagnose.Finding {
	before := time.Now()
	_, date, _, err := r.fetch(ctx, "/health")
	if err != nil {
		return diagnose.Skipped(unreachable)
	}
	theirs, err := http.ParseTime(date)
	if err != nil {
		return diagnose.Skipped("the server's answer has no date")
	}
	return judgeClock(theirs.Add(time.Second/2).Sub(before.Add(time.Since(before)/2)), "server")
}

func judgeClock(skew time.Duration, whose string) diagnose.Finding {
	switch d := skew.Abs(); {
	case d > clockFail:
		return diagnose.Failed("set the clock; run an NTP service on every machine", "the %s's clock is %s away from this machine's", whose, d.Round(time.Second))
	case d > clockWarn:
		return diagnose.Warned("run an NTP service on every machine", "the %s's clock is %s away from this machine's", whose, d.Round(time.Second))
	}
	return diagnose.Passed("the %s's clock is this machine's, within seconds", whose)
}

func (r *remote) protocol(ctx context.Context) diagnose.Finding {
	cl, err := r.c.Dial(r.url, "")
	if err != nil {
		return diagnose.Failed("give an address such as "+console.DefaultServer, "%v", err)
	}
	caps, err := cl.CheckProtocol(ctx)
	var pe *client.ProtocolError
	switch {
	case errors.As(err, &pe):
		return diagnose.Failed("use a kici of the server's version", "%v", err)
	case err != nil:
		return diagnose.Skipped(unreachable)
	}
	return diagnose.Passed("both speak version %d of the API", caps.ProtocolVersion)
}

func (r *remote) token(ctx context.Context) diagnose.Finding {
	if r.api == nil {
		return diagnose.Warned(fmt.Sprintf("kici login %s", r.url), "%v", r.why)
	}
	who, err := r.api.WhoAmI(ctx)
	var ce *client.ConnectError
	switch {
	case errors.As(err, &ce):
		return diagnose.Skipped(unreachable)
	case client.IsStatus(err, http.StatusUnauthorized):
		return diagnose.Failed(fmt.Sprintf("kici login %s", r.url), "the server refuses the token: %v", err)
	case err != nil:
		return diagnose.Failed("look at the server's log", "%v", err)
	}
	return diagnose.Passed("%s, role %s", or(who.Label, who.TokenID), who.Role)
}

// authorized is a check that needs a token; without one, or without a server, it is not asked.
func (r *remote) authorized(name string, f func(context.Context) (diagnose.Finding, error)) diagnose.Check {
	return asker(name, func(ctx context.Context) diagnose.Finding {
		if r.api == nil {
			return diagnose.Skipped("needs a token")
		}
		found, err := f(ctx)
		var se *client.StatusError
		switch {
		case err == nil:
			return found
		case errors.As(err, &se) && (se.Status == http.StatusUnauthorized || se.Status == http.StatusForbidden):
			return diagnose.Skipped("the token may not see it")
		case errors.As(err, &se):
			return diagnose.Failed("look at the server's log", "%v", err)
		}
		return diagnose.Skipped(unreachable)
	})
}

// scalerRows are what the server's own examination says of each scaler, or one row of their list where the token may not ask for that.
func (r *remote) scalerRows(ctx context.Context) []diagnose.Row {
	if r.api != nil {
		if d, err := r.api.Diagnose(ctx); err == nil {
			var rows []diagnose.Row
			for _, c := range d.Checks {
				if strings.HasPrefix(c.Name, "scaler:") {
					rows = append(rows, diagnose.Row{Name: c.Name, Finding: diagnose.Finding{Status: diagnose.Status(c.Status), Message: c.Message, Cure: c.Cure, Details: c.Details}})
				}
			}
			if len(rows) > 0 {
				return rows
			}
		}
	}
	list := r.authorized("scalers", r.scalers)
	return []diagnose.Row{{Name: list.Name, Finding: list.Ask(ctx)}}
}

func (r *remote) scalers(ctx context.Context) (diagnose.Finding, error) {
	list, err := r.api.Scalers(ctx)
	if err != nil {
		return diagnose.Finding{}, err
	}
	if len(list.Scalers) == 0 {
		return diagnose.Warned("add one to scalers.yaml, or run \"kici agent\" somewhere", "there is no scaler: only agents started by hand run jobs"), nil
	}
	for _, s := range list.Scalers {
		switch s.State {
		case "backing off", "not ready", "node lost":
			return diagnose.Warned("kici scaler list --failures", "%s on %s is %s: %s", s.Name, s.NodeName, s.State, s.StateText), nil
		}
	}
	return diagnose.Passed("%s, none in trouble", console.Count(int64(len(list.Scalers)), "scaler")), nil
}

// stuckAfter is how long the oldest job may wait before somebody should look.
const stuckAfter = 5 * time.Minute

func (r *remote) queue(ctx context.Context) (diagnose.Finding, error) {
	q, err := r.api.Queue(ctx, "", 1)
	if err != nil {
		return diagnose.Finding{}, err
	}
	wait := time.Duration(q.OldestMs) * time.Millisecond
	switch {
	case q.Waiting == 0:
		return diagnose.Passed("no job waits for an agent"), nil
	case wait < stuckAfter || len(q.Items) == 0:
		return diagnose.Passed("%s waiting, the oldest for %s", console.Count(q.Waiting, "job"), console.Took(q.OldestMs)), nil
	}
	head := q.Items[0]
	return diagnose.Warned("kici why "+head.JobID, "%s waiting; %s of %s #%d has waited for %s: %s", console.Count(q.Waiting, "job"), head.JobName, head.Repo, head.RunNumber, console.Took(q.OldestMs), head.Why), nil
}

// maxSources bounds how many sources are asked one by one.
const maxSources = 50

func (r *remote) sources(ctx context.Context) (diagnose.Finding, error) {
	list, err := r.api.Sources(ctx)
	if err != nil {
		return diagnose.Finding{}, err
	}
	if len(list.Sources) == 0 {
		return diagnose.Warned("kici source add", "there is no source: nothing starts runs"), nil
	}
	for _, s := range list.Sources[:min(len(list.Sources), maxSources)] {
		if !s.Enabled || !onForge(s) {
			continue
		}
		one, err := r.api.Source(ctx, s.ID)
		if err != nil {
			return diagnose.Finding{}, err
		}
		if p := one.Poll; p != nil && p.Failures > 0 {
			return diagnose.Warned("kici source check "+s.Name, "%s could not be asked for new commits %d times in a row: %s", s.Name, p.Failures, p.Message), nil
		}
	}
	return diagnose.Passed("%s", console.Count(int64(len(list.Sources)), "source")), nil
}

func onForge(s client.Source) bool {
	return slices.Contains([]string{"github", "gitea", "gitlab"}, s.Kind)
}

// publicURL looks whether forges are told an address that only this machine can reach.
func (r *remote) publicURL(ctx context.Context) (diagnose.Finding, error) {
	list, err := r.api.Sources(ctx)
	if err != nil {
		return diagnose.Finding{}, err
	}
	for _, s := range list.Sources {
		u, err := url.Parse(s.WebhookURL)
		if err != nil || !onForge(s) {
			continue
		}
		ip := net.ParseIP(u.Hostname())
		if u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
			return diagnose.Warned("start the server with --public-url and the address by which forges reach it",
				"%s is told to deliver to %s, which only this machine can reach", s.Name, s.WebhookURL), nil
		}
	}
	return diagnose.Passed("no forge is told a local address"), nil
}
