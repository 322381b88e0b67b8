package forge

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/git"
)

// Options is the kind's part of a stored source.
type Options struct {
	URL           string `json:"url,omitempty"`             // of the web interface, such as https://git.example.com; required but for the public instances
	APIURL        string `json:"apiUrl,omitempty"`          // made of URL when empty
	Repository    string `json:"repository"`                // owner/name (GitLab: with all its groups)
	Clone         string `json:"clone,omitempty"`           // https (default) or ssh
	CloneURL      string `json:"cloneUrl,omitempty"`        // made of URL and Repository when empty
	KnownHosts    string `json:"knownHosts,omitempty"`      // lines of known_hosts that pin the host's keys
	DefaultBranch string `json:"defaultBranch,omitempty"`   // asked from the forge when empty
	Forks         string `json:"forks,omitempty"`           // ignore (default) or run: pull requests from forks run with the base branch's workflows and without secrets (D10, LOCK-9)
	Statuses      string `json:"statuses,omitempty"`        // jobs (default: per workflow and job), workflows, off
	AllowPrivate  bool   `json:"allowPrivate,omitempty"`    // the forge may live at a private or loopback address, speak plain HTTP, and redirect there
	MaxPayload    int64  `json:"maxPayloadBytes,omitempty"` // 0 is 25 MiB (ING-7)
}

// The words of Options.
const (
	CloneHTTPS = "https"
	CloneSSH   = "ssh"

	ForksIgnore = "ignore"
	ForksRun    = "run"

	StatusesJobs      = "jobs"
	StatusesWorkflows = "workflows"
	StatusesOff       = "off"
)

// Bounds of Options.
const (
	maxPayload    = 25 << 20 // ING-7
	maxKnownHosts = 64 << 10
	maxRepository = 200
)

// withDefaults fills what is empty and can be made of the rest.
func (o Options) withDefaults(d Dialect) Options {
	o.URL = strings.TrimRight(o.URL, "/")
	if o.URL == "" {
		o.URL = d.Public()
	}
	if o.APIURL = strings.TrimRight(o.APIURL, "/"); o.APIURL == "" && o.URL != "" {
		o.APIURL = d.APIBase(o.URL)
	}
	if o.Clone == "" {
		o.Clone = CloneHTTPS
		if o.CloneURL != "" && !strings.HasPrefix(o.CloneURL, "https://") && !strings.HasPrefix(o.CloneURL, "http://") {
			o.Clone = CloneSSH
		}
	}
	if o.CloneURL == "" && o.URL != "" {
		o.CloneURL = d.CloneURL(o.URL, o.Repository, o.Clone == CloneSSH)
	}
	if o.Forks == "" {
		o.Forks = ForksIgnore
	}
	if o.Statuses == "" {
		o.Statuses = StatusesJobs
	}
	if o.MaxPayload == 0 {
		o.MaxPayload = maxPayload
	}
	return o
}

// validate says everything that is wrong with options that withDefaults has filled.
func (o Options) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	if o.URL == "" {
		check(false, "url is required: the address of the forge's web interface, such as https://git.example.com")
	} else {
		errs = append(errs, o.checkHTTP("url", o.URL), o.checkHTTP("apiUrl", o.APIURL), o.checkClone())
	}
	check(repository(o.Repository), "repository %q must be owner/name, as in the address of its page", o.Repository)
	check(o.Clone == CloneHTTPS || o.Clone == CloneSSH, "clone is %s or %s, not %q", CloneHTTPS, CloneSSH, o.Clone)
	check(o.Forks == ForksIgnore || o.Forks == ForksRun, "forks is %s or %s, not %q", ForksIgnore, ForksRun, o.Forks)
	check(slices.Contains([]string{StatusesJobs, StatusesWorkflows, StatusesOff}, o.Statuses), "statuses is %s, %s or %s, not %q", StatusesJobs, StatusesWorkflows, StatusesOff, o.Statuses)
	check(o.MaxPayload > 0 && o.MaxPayload <= maxPayload, "maxPayloadBytes is between 1 and %d", maxPayload)
	check(len(o.KnownHosts) <= maxKnownHosts && !strings.ContainsRune(o.KnownHosts, 0), "knownHosts holds lines of known_hosts, at most %d bytes", maxKnownHosts)
	if o.DefaultBranch != "" {
		if err := git.CheckRef("refs/heads/" + o.DefaultBranch); err != nil {
			errs = append(errs, fmt.Errorf("defaultBranch: %w", err))
		}
	}
	return errors.Join(errs...)
}

// checkHTTP accepts the address of a web server. Plain HTTP shows the token to whoever listens, so that only a forge on one's own network may
// speak it.
func (o Options) checkHTTP(field, raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("%s %q is not an address such as https://git.example.com", field, git.Redact(raw))
	case u.User != nil:
		return fmt.Errorf("%s must not contain a user name or password: the credential is the source's secret `token`", field)
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%s %q must end before ? and #", field, raw)
	case u.Scheme == "http" && !o.AllowPrivate:
		return fmt.Errorf("%s %q is not encrypted: use https, or set allowPrivate (--allow-private) for a forge on your own network", field, raw)
	}
	return o.checkHost(field, u.Hostname())
}

// checkHost refuses what is plainly a private address; what names lead to is judged when they are dialled.
func (o Options) checkHost(field, host string) error {
	addr, err := netip.ParseAddr(host)
	if err != nil || o.AllowPrivate || public(addr.Unmap()) {
		return nil //nolint:nilerr // a name, which is judged when it is dialled
	}
	return fmt.Errorf("%s: %s is an address of a private network: set allowPrivate (--allow-private) if the forge lives there", field, host)
}

func (o Options) checkClone() error {
	if o.CloneURL == "" {
		return nil
	}
	https := strings.HasPrefix(o.CloneURL, "https://") || strings.HasPrefix(o.CloneURL, "http://")
	switch {
	case https && o.Clone == CloneSSH:
		return fmt.Errorf("cloneUrl %q is not an address for clone: ssh", git.Redact(o.CloneURL))
	case https:
		return o.checkHTTP("cloneUrl", o.CloneURL)
	case o.Clone == CloneHTTPS:
		return fmt.Errorf("cloneUrl %q is not an address for clone: https", git.Redact(o.CloneURL))
	}
	// Neither file:// nor a path: those would read the server's own disk.
	scheme, _, found := strings.Cut(o.CloneURL, "://")
	if found && scheme != "ssh" || strings.HasPrefix(o.CloneURL, "/") {
		return fmt.Errorf("cloneUrl %q is neither https://… nor ssh://… nor user@host:path", git.Redact(o.CloneURL))
	}
	if err := git.CheckURL(o.CloneURL); err != nil {
		return fmt.Errorf("cloneUrl: %w", err)
	}
	return o.checkHost("cloneUrl", sshHost(o.CloneURL))
}

// sshHost is the host of ssh://user@host:port/path and of user@host:path.
func sshHost(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return u.Hostname()
	}
	_, rest, _ := strings.Cut(address, "@")
	host, _, _ := strings.Cut(rest, ":")
	return host
}

// repository accepts owner/name with any number of groups. Each part goes into addresses, so it holds nothing with a meaning there.
func repository(name string) bool {
	parts := strings.Split(name, "/")
	if len(parts) < 2 || len(name) > maxRepository {
		return false
	}
	for _, p := range parts {
		if p == "" || strings.Trim(p, ".") == "" || p[0] == '-' ||
			strings.Trim(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" {
			return false
		}
	}
	return true
}
