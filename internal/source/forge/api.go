package forge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/kici-go/kici/internal/source"
)

// Bounds of one answer and of one listing.
const (
	maxAnswer = 4 << 20
	maxPages  = 50
)

// APIConfig says which API and with what credential.
type APIConfig struct {
	Base         string            // address without a trailing slash, such as https://api.github.com
	Token        string            // "" asks as nobody
	AllowPrivate bool              // Options.AllowPrivate
	Header       map[string]string // of every request
}

// API is a client of one forge's API with one token: bounded, patient with rate limits, and closed to private addresses unless
// allowed. Its errors say what to do, and never contain the token:
//
//   - source.ErrUnreachable: the forge is down, slow or limits the rate; try again, not before source.RetryTime
//   - source.ErrDenied: the token is revoked or lacks a right
//   - source.ErrNotFound: there is no such thing, or the token may not see it
//   - any other: the request itself is wrong, and will be again
//
// It is safe for concurrent use, and never repeats a request by itself.
type API struct {
	h      *HTTP
	client *http.Client
	c      APIConfig
	base   *url.URL
	key    string // names this API and token among HTTP's pauses
}

// Do makes one request and decodes its JSON answer into out; unknown fields are skipped. path begins with a slash and may carry a
// query; body and out may be nil.
func (a *API) Do(ctx context.Context, method, path string, body, out any) error {
	_, err := a.do(ctx, method, path, body, out)
	return err
}

// List reads a listing page by page, as the Link headers lead, until more is false or maxPages are read. Each page is what the forge
// sent: a JSON list.
func (a *API) List(ctx context.Context, path string, page func(raw json.RawMessage) (more bool, err error)) error {
	for range maxPages {
		var raw json.RawMessage
		header, err := a.do(ctx, http.MethodGet, path, nil, &raw)
		if err != nil {
			return err
		}
		if more, err := page(raw); err != nil || !more {
			return err
		}
		if path, err = a.next(header); err != nil || path == "" {
			return err
		}
	}
	return nil
}

// next is the path of the next page, "" after the last. An address elsewhere would get the token, so it is refused.
func (a *API) next(h http.Header) (string, error) {
	for part := range strings.SplitSeq(strings.Join(h.Values("Link"), ","), ",") {
		target, params, _ := strings.Cut(part, ";")
		if !strings.Contains(strings.ReplaceAll(params, " ", ""), `rel="next"`) {
			continue
		}
		u, err := a.base.Parse(strings.Trim(target, " <>"))
		if err != nil || !sameOrigin(u, a.base) || !strings.HasPrefix(u.Path, a.base.Path+"/") {
			return "", errors.New("the forge's next page is not below apiUrl: is apiUrl the address that the forge itself uses?")
		}
		return strings.TrimPrefix(u.RequestURI(), a.base.EscapedPath()), nil
	}
	return "", nil
}

func (a *API) do(ctx context.Context, method, path string, body, out any) (http.Header, error) {
	what := method + " " + path
	if err := a.h.paused(a.key); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	bounded, cancel := context.WithTimeout(ctx, a.h.o.Timeout)
	defer cancel()
	req, err := a.request(bounded, method, path, body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	res, err := a.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, a.unreached(ctx, err))
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", what, a.unreached(ctx, err))
	case len(text) > maxAnswer:
		return nil, fmt.Errorf("%s: %w: an answer of more than %d bytes", what, source.ErrTooLarge, maxAnswer)
	}
	if err := a.judge(res, text); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			return nil, fmt.Errorf("%s: the answer is not what this forge's API gives: is apiUrl right? %w", what, err)
		}
	}
	return res.Header, nil
}

func (a *API) request(ctx context.Context, method, path string, body any) (*http.Request, error) {
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		sent = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.c.Base+path, sent)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "kici")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range a.c.Header {
		req.Header.Set(name, value)
	}
	if a.c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+a.c.Token)
	}
	return req, nil
}

// unreached says why there is no answer. The caller's own end is passed on; everything else may pass by itself.
func (a *API) unreached(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var u *url.Error
	if errors.As(err, &u) { // it repeats the address
		err = u.Err
	}
	switch {
	case errors.Is(err, errRedirect), errors.Is(err, errPrivate):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %s did not answer within %s", source.ErrUnreachable, a.base.Host, a.h.o.Timeout)
	}
	return fmt.Errorf("%w: %s", source.ErrUnreachable, a.clean(err.Error()))
}

// clean keeps the token out of what others said.
func (a *API) clean(text string) string {
	if a.c.Token != "" {
		text = strings.ReplaceAll(text, a.c.Token, "***")
	}
	return source.Bound(text, maxMessage)
}

const maxMessage = 300
