package forge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/forge"
	"github.com/kici-go/kici/internal/source/forge/forgetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// now is the clock of these tests. It is a year away from the fake forge's, which uses the machine's.
var now = time.Date(2020, 5, 1, 12, 0, 0, 0, time.UTC)

type fake struct {
	*httptest.Server
	asked atomic.Int64
	api   *forge.API
}

// serve is a forge of one answer, and a client of it.
func serve(t *testing.T, o forge.HTTPOptions, answer http.HandlerFunc) *fake {
	t.Helper()
	f := &fake{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.asked.Add(1)
		answer(w, r)
	}))
	t.Cleanup(f.Close)
	if o.Now == nil {
		o.Now = func() time.Time { return now }
	}
	only := netip.MustParseAddrPort(f.Listener.Addr().String())
	if o.Allowed == nil {
		o.Allowed = func(a netip.AddrPort) bool { return a == only } // nothing else on this machine
	}
	var err error
	if f.api, err = forgetest.HTTP(t, o).API(forge.APIConfig{Base: f.URL + "/api", Token: forgetest.Token}); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fake) get(t *testing.T) error {
	t.Helper()
	err := f.api.Do(t.Context(), http.MethodGet, "/x", nil, nil)
	noToken(t, err)
	return err
}

func noToken(t *testing.T, err error) {
	t.Helper()
	if err != nil && strings.Contains(err.Error(), forgetest.Token) {
		t.Errorf("the token is in an error: %v", err)
	}
}

func TestDo(t *testing.T) {
	f := serve(t, forge.HTTPOptions{}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPut || r.URL.RequestURI() != "/api/a/b?c=d" || string(body) != `{"n":1}` ||
			r.Header.Get("Authorization") != "Bearer "+forgetest.Token || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s %s %v", r.Method, r.URL, body, r.Header)
		}
		fmt.Fprint(w, `{"name":"x","new field":[1]}`)
	})
	var got struct{ Name string }
	err := f.api.Do(t.Context(), http.MethodPut, "/a/b?c=d", map[string]int{"n": 1}, &got)
	if err != nil || got.Name != "x" {
		t.Errorf("%+v %v", got, err)
	}
}

func TestAnswers(t *testing.T) {
	date := time.Now().UTC()
	for name, tc := range map[string]struct {
		status int
		header map[string]string
		body   string
		kind   error
		wait   time.Duration // until RetryTime; 0 is none
		says   string
	}{
		"revoked":      {401, nil, `{"message":"Bad credentials"}`, source.ErrDenied, 0, "revoked"},
		"no right":     {403, map[string]string{"X-RateLimit-Remaining": "17"}, `{"message":"Resource not accessible"}`, source.ErrDenied, 0, "lacks a right"},
		"missing":      {404, nil, `{"message":"Not Found"}`, source.ErrNotFound, 0, "may not see it"},
		"down":         {503, nil, `{}`, source.ErrUnreachable, 0, "503"},
		"down, a page": {502, map[string]string{"Content-Type": "text/html"}, `<html>Bad gateway`, source.ErrUnreachable, 0, "502"},
		"down, asks":   {503, map[string]string{"Retry-After": "7"}, `{}`, source.ErrUnreachable, 7 * time.Second, "asks to wait"},
		"limit with reset": {403, map[string]string{
			"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": fmt.Sprint(date.Add(90 * time.Second).Unix()),
			"Date": date.Format(http.TimeFormat),
		}, `{"message":"API rate limit exceeded"}`, source.ErrUnreachable, 90 * time.Second, "asks to wait"},
		"limit in seconds": {429, map[string]string{"Retry-After": "30"}, `{}`, source.ErrUnreachable, 30 * time.Second, ""},
		"second limit":     {403, map[string]string{"Retry-After": "60"}, `{"message":"You have exceeded a secondary rate limit"}`, source.ErrUnreachable, time.Minute, ""},
		"second limit that does not say": {
			403, nil, `{"message":"You have exceeded a secondary rate limit"}`, source.ErrUnreachable, time.Minute, "",
		},
		"limit with a date": {429, map[string]string{
			"Retry-After": date.Add(2 * time.Minute).Format(http.TimeFormat), "Date": date.Format(http.TimeFormat),
		}, `{}`, source.ErrUnreachable, 2 * time.Minute, ""},
		"GitLab's limit": {429, map[string]string{
			"RateLimit-Remaining": "0", "RateLimit-Reset": fmt.Sprint(date.Add(40 * time.Second).Unix()), "Date": date.Format(http.TimeFormat),
		}, `Retry later`, source.ErrUnreachable, 40 * time.Second, ""},
		"limit of a year":     {429, map[string]string{"Retry-After": "31536000"}, `{}`, source.ErrUnreachable, time.Hour, ""},
		"limit in the past":   {429, map[string]string{"Retry-After": "-5"}, `{}`, source.ErrUnreachable, time.Second, ""},
		"limit of nonsense":   {429, map[string]string{"Retry-After": "soon"}, `{}`, source.ErrUnreachable, time.Minute, ""},
		"web page":            {200, map[string]string{"Content-Type": "text/html; charset=utf-8"}, `<!DOCTYPE html>`, source.ErrUnreachable, 0, "web page, not JSON: is apiUrl right?"},
		"web page, untyped":   {200, map[string]string{"Content-Type": "application/json"}, "\n <html>", source.ErrUnreachable, 0, "web page"},
		"web page, not found": {404, map[string]string{"Content-Type": "text/html"}, `<html>`, source.ErrUnreachable, 0, "web page"},
		"not JSON":            {200, nil, `hello`, nil, 0, "is apiUrl right?"},
		"other JSON":          {200, nil, `[1]`, nil, 0, "is apiUrl right?"},
		"invalid":             {422, nil, `{"message":{"base":["already exists"]}}`, nil, 0, "already exists"},
		"too large":           {200, nil, `"` + strings.Repeat("x", 4<<20) + `"`, source.ErrTooLarge, 0, "4194304"},
		"token repeated":      {400, nil, `{"message":"who is ` + forgetest.Token + `?"}`, nil, 0, "who is ***?"},
		"long message":        {400, nil, `{"message":"` + strings.Repeat("x", 100_000) + `"}`, nil, 0, "400"},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, forge.HTTPOptions{}, func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range tc.header {
					w.Header().Set(k, v)
				}
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			})
			var out struct{ A int }
			err := f.api.Do(t.Context(), http.MethodGet, "/x", nil, &out)
			noToken(t, err)
			if err == nil || !strings.Contains(err.Error(), tc.says) || len(err.Error()) > 1000 {
				t.Fatalf("%v, want %q", err, tc.says)
			}
			for _, kind := range []error{source.ErrDenied, source.ErrNotFound, source.ErrUnreachable, source.ErrTooLarge} {
				if errors.Is(err, kind) != errors.Is(kind, tc.kind) {
					t.Errorf("%v is %v: %v", err, kind, errors.Is(err, kind))
				}
			}
			at := source.RetryTime(err)
			if tc.wait == 0 && !at.IsZero() || tc.wait != 0 && (at.Sub(now) < tc.wait-2*time.Second || at.Sub(now) > tc.wait) {
				t.Errorf("retry in %v, want %v", at.Sub(now), tc.wait)
			}
		})
	}
}

// While a forge asks for a pause, nothing is sent; afterwards it is.
func TestPauseIsKept(t *testing.T) {
	clock := atomic.Pointer[time.Time]{}
	clock.Store(&now)
	limited := atomic.Bool{}
	limited.Store(true)
	f := serve(t, forge.HTTPOptions{Now: func() time.Time { return *clock.Load() }}, func(w http.ResponseWriter, _ *http.Request) {
		if limited.Load() {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	first := f.get(t)
	limited.Store(false)
	second := f.get(t)
	if f.asked.Load() != 1 || !errors.Is(second, source.ErrUnreachable) || !source.RetryTime(first).Equal(source.RetryTime(second)) || source.RetryTime(first).IsZero() {
		t.Errorf("asked %d times: %v, %v", f.asked.Load(), first, second)
	}
	later := source.RetryTime(first)
	clock.Store(&later)
	if err := f.get(t); err != nil || f.asked.Load() != 2 {
		t.Errorf("asked %d times: %v", f.asked.Load(), err)
	}
}

func TestSlowForge(t *testing.T) {
	release := make(chan struct{})
	f := serve(t, forge.HTTPOptions{Timeout: 50 * time.Millisecond}, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	if err := f.get(t); !errors.Is(err, source.ErrUnreachable) || !strings.Contains(err.Error(), "did not answer within 50ms") {
		t.Error(err)
	}
	// The caller's own end is no fault of the forge.
	ctx, cancel := context.WithCancelCause(t.Context())
	own := errors.New("the server stops")
	cancel(own)
	if err := f.api.Do(ctx, http.MethodGet, "/x", nil, nil); !errors.Is(err, own) || errors.Is(err, source.ErrUnreachable) {
		t.Error(err)
	}
}

func TestForgeThatIsDown(t *testing.T) {
	f := serve(t, forge.HTTPOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = c.Close()
		}
	})
	if err := f.get(t); !errors.Is(err, source.ErrUnreachable) {
		t.Errorf("cut connection: %v", err)
	}
	f.Close()
	if err := f.get(t); !errors.Is(err, source.ErrUnreachable) {
		t.Errorf("nobody listens: %v", err)
	}
}

func TestPrivateAddressesAreRefused(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was reached") }))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	h := forge.NewHTTP(forge.HTTPOptions{})
	defer h.Close()
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "10.0.0.1", "169.254.169.254", "[fd00:ec2::254]", "0.0.0.0", "192.168.1.1", "100.64.0.1"} {
		api, err := h.API(forge.APIConfig{Base: "http://" + host + ":" + port, Token: forgetest.Token})
		if err != nil {
			t.Fatal(err)
		}
		err = api.Do(t.Context(), http.MethodGet, "/x", nil, nil)
		noToken(t, err)
		if err == nil || !strings.Contains(err.Error(), "private network") || errors.Is(err, source.ErrUnreachable) {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func TestOperatorMayAllowPrivateAddresses(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	h := forge.NewHTTP(forge.HTTPOptions{})
	defer h.Close()
	ask := func(base string) error {
		api, err := h.API(forge.APIConfig{Base: base, AllowPrivate: true})
		if err != nil {
			t.Fatal(err)
		}
		return api.Do(t.Context(), http.MethodGet, "/x", nil, nil)
	}
	if err := ask(server.URL); err != nil {
		t.Error(err)
	}
	// The service with a cloud's credentials stays closed.
	if err := ask("http://169.254.169.254"); err == nil || !strings.Contains(err.Error(), "refused to connect") {
		t.Error(err)
	}
}

func TestRedirects(t *testing.T) {
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the private server was reached") }))
	defer inside.Close()
	_, port, _ := net.SplitHostPort(inside.Listener.Addr().String())
	var to string
	hops := 0
	f := serve(t, forge.HTTPOptions{}, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			t.Errorf("%s came without the token", r.URL)
		}
		if hops--; hops < 0 {
			fmt.Fprint(w, `{}`)
			return
		}
		http.Redirect(w, r, to, http.StatusTemporaryRedirect)
	})
	for name, tc := range map[string]struct {
		to   string
		hops int
		says string
	}{
		"renamed":                  {"/api/y", 1, ""},
		"five":                     {"/api/y", 5, ""},
		"six":                      {"/api/y", 6, "more than 5"},
		"private address":          {inside.URL + "/y", 1, "private network"},
		"name of a private one":    {"http://localhost:" + port + "/y", 1, "private network"},
		"metadata":                 {"http://169.254.169.254/latest/meta-data", 1, "private network"},
		"neither http nor https":   {"file:///etc/passwd", 1, "unsupported protocol"},
		"private address with TLS": {"https://10.1.2.3/y", 1, "private network"},
	} {
		to, hops = tc.to, tc.hops
		err := f.get(t)
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A token goes to the API's own host, and never again once a redirect has left it; a write does not leave at all.
func TestTokenStaysHome(t *testing.T) {
	home := ""
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Errorf("the token went to another host")
		}
		http.Redirect(w, r, home+"/api/back", http.StatusTemporaryRedirect)
	}))
	defer other.Close()
	f := serve(t, forge.HTTPOptions{Allowed: func(netip.AddrPort) bool { return true }}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/back" {
			if r.Header.Get("Authorization") != "" {
				t.Error("the token was used on the word of another host")
			}
			fmt.Fprint(w, `{}`)
			return
		}
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	home = f.URL
	if err := f.get(t); err != nil {
		t.Error(err)
	}
	before := f.asked.Load()
	err := f.api.Do(t.Context(), http.MethodPost, "/x", map[string]string{"secret": "s"}, nil)
	if err == nil || !strings.Contains(err.Error(), "another host") || f.asked.Load() != before+1 {
		t.Errorf("a write left home: %v", err)
	}
}

// A redirect that turns a write into a question would report success for what was never written.
func TestRedirectedWrite(t *testing.T) {
	f := serve(t, forge.HTTPOptions{}, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/api/y", http.StatusMovedPermanently)
	})
	if err := f.api.Do(t.Context(), http.MethodPost, "/x", struct{}{}, nil); err == nil || !strings.Contains(err.Error(), "redirect") || f.asked.Load() != 1 {
		t.Error(err)
	}
}

func TestList(t *testing.T) {
	links := map[string]string{}
	f := serve(t, forge.HTTPOptions{}, func(w http.ResponseWriter, r *http.Request) {
		if l := links[r.URL.RequestURI()]; l != "" {
			w.Header().Set("Link", l)
		}
		fmt.Fprintf(w, "[%q]", r.URL.RequestURI())
	})
	read := func(enough int) (pages []string, err error) {
		err = f.api.List(t.Context(), "/l?n=1", func(raw json.RawMessage) (bool, error) {
			var page []string
			err := json.Unmarshal(raw, &page)
			pages = append(pages, page...)
			return len(pages) < enough, err
		})
		return pages, err
	}
	links["/api/l?n=1"] = `<` + f.URL + `/api/l?n=2>; rel="next", <` + f.URL + `/api/l?n=9>; rel="last"`
	links["/api/l?n=2"] = `<` + f.URL + `/api/l?n=1>; rel="prev", </api/l?n=3>; rel="next"`
	if got, err := read(100); err != nil || strings.Join(got, " ") != "/api/l?n=1 /api/l?n=2 /api/l?n=3" {
		t.Errorf("%v %v", got, err)
	}
	if got, err := read(2); err != nil || len(got) != 2 {
		t.Errorf("%v %v", got, err)
	}
	for _, elsewhere := range []string{"http://127.0.0.1:1/api/l", f.URL + "/other", "//evil.example.com/api/x"} {
		links["/api/l?n=1"] = "<" + elsewhere + `>; rel="next"`
		if _, err := read(100); err == nil || !strings.Contains(err.Error(), "next page") {
			t.Errorf("%s: %v", elsewhere, err)
		}
	}
	links["/api/l?n=1"] = `<` + f.URL + `/api/l?n=1>; rel="next"` // for ever
	if got, err := read(1000); err != nil || len(got) != 50 {
		t.Errorf("%d pages, %v", len(got), err)
	}
}
