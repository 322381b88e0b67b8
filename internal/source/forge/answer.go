package forge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/source"
)

// Bounds of how long a forge may ask to wait.
const (
	minPause     = time.Second
	defaultPause = time.Minute // what GitHub asks for when it does not say
	maxPause     = time.Hour
)

// judge gives a status its meaning; nil is success.
func (a *API) judge(res *http.Response, body []byte) error {
	status := fmt.Sprintf("%d %s", res.StatusCode, http.StatusText(res.StatusCode))
	if m := a.message(body); m != "" {
		status += ": " + m
	}
	limited := res.StatusCode == http.StatusTooManyRequests || res.StatusCode == http.StatusForbidden && rateLimited(res.Header, body)
	switch code := res.StatusCode; {
	case limited, code >= 500:
		return a.retry(res, limited, status)
	case isHTML(res.Header, body):
		return fmt.Errorf("%w: %s answered with a web page, not JSON: is apiUrl right?", source.ErrUnreachable, a.base.Host)
	case code >= 200 && code < 300:
		return nil
	case code == http.StatusUnauthorized:
		return fmt.Errorf("%w (%s): the token was revoked, has expired or is mistyped; give the source a new one", source.ErrDenied, status)
	case code == http.StatusForbidden:
		return fmt.Errorf("%w (%s): the token lacks a right for this; give the source one that has it", source.ErrDenied, status)
	case code == http.StatusNotFound:
		return missing{status}
	default:
		return errors.New(status)
	}
}

// missing is a source.ErrNotFound in words that fit an API.
type missing struct{ status string }

// Error implements error.
func (m missing) Error() string {
	return m.status + ": there is no such thing, or the token may not see it; check the name of the repository and the token's rights"
}

// Unwrap gives the contract's error.
func (m missing) Unwrap() error { return source.ErrNotFound }

// retry says when a request may be made again, and remembers it if the forge asked.
func (a *API) retry(res *http.Response, limited bool, status string) error {
	now := a.h.o.Now()
	wait, asked := pauseOf(res.Header, now)
	if !asked && !limited {
		return fmt.Errorf("%w: %s", source.ErrUnreachable, status)
	}
	if !asked {
		wait = defaultPause
	}
	r := &source.RetryAt{At: now.Add(min(max(wait, minPause), maxPause))}
	r.Cause = fmt.Errorf("%w before %s: the forge asks to wait (%s)", source.ErrUnreachable, r.At.UTC().Format(time.RFC3339), status)
	a.h.pause(a.key, r)
	return r
}

// rateLimited tells a spent rate limit from a missing right: both are 403 at GitHub.
func rateLimited(h http.Header, body []byte) bool {
	return h.Get("Retry-After") != "" || h.Get("X-RateLimit-Remaining") == "0" || bytes.Contains(bytes.ToLower(body), []byte("rate limit"))
}

// pauseOf reads how long the forge asks to wait. Instants are read on the forge's own clock, which need not be ours.
func pauseOf(h http.Header, now time.Time) (time.Duration, bool) {
	theirs := now
	if t, err := http.ParseTime(h.Get("Date")); err == nil {
		theirs = t
	}
	if text := h.Get("Retry-After"); text != "" {
		if s, err := strconv.ParseInt(text, 10, 32); err == nil {
			return time.Duration(s) * time.Second, true
		}
		if t, err := http.ParseTime(text); err == nil {
			return t.Sub(theirs), true
		}
	}
	for _, p := range []string{"X-RateLimit-", "RateLimit-"} { // GitHub and Gitea; GitLab
		reset, err := strconv.ParseInt(h.Get(p+"Reset"), 10, 64)
		if err == nil && reset > 0 && reset < 1<<40 && h.Get(p+"Remaining") == "0" {
			return time.Unix(reset, 0).Sub(theirs), true
		}
	}
	return 0, false
}

func isHTML(h http.Header, body []byte) bool {
	return strings.HasPrefix(h.Get("Content-Type"), "text/html") || bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n\ufeff"), []byte("<"))
}

// message is what the forge says about an error: {"message": text} everywhere, which GitLab also uses for lists and objects.
func (a *API) message(body []byte) string {
	var m struct {
		Message json.RawMessage `json:"message"`
		Error   json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &m) != nil {
		return ""
	}
	for _, raw := range []json.RawMessage{m.Message, m.Error} {
		var text string
		if len(raw) > 0 && json.Unmarshal(raw, &text) != nil {
			text = string(raw)
		}
		if text != "" && text != "null" {
			return a.clean(text)
		}
	}
	return ""
}
