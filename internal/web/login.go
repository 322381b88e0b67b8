package web

import (
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/kici-go/kici/internal/access"
)

func (s *server) principal(r *http.Request) (access.Principal, error) {
	c, err := r.Cookie(cookieName)
	if err != nil {
		return access.Principal{}, access.ErrUnauthenticated
	}
	return s.Sessions.Session(r.Context(), c.Value)
}

func (s *server) loginForm(w http.ResponseWriter, r *http.Request) {
	s.render(w, r, loginPage(s.signIn(r), ""))
}

func (s *server) login(w http.ResponseWriter, r *http.Request) {
	session, err := s.Sessions.NewSession(access.WithAddress(r.Context(), r.RemoteAddr), strings.TrimSpace(r.PostFormValue("token")))
	if err != nil {
		status, message := http.StatusUnauthorized, "This token is not valid."
		switch {
		case errors.Is(err, access.ErrUnavailable):
			status, message = http.StatusServiceUnavailable, "Authentication is unavailable; try again in a moment."
		case errors.Is(err, access.ErrRateLimited):
			status, message = http.StatusTooManyRequests, "Too many failed attempts; wait a minute."
		}
		w.WriteHeader(status)
		s.render(w, r, loginPage(s.signIn(r), message))
		return
	}
	s.setCookie(w, r, session)
	s.redirect(w, r, next(r))
}

// loginLink redeems a one-time link. The link dies at its first use.
func (s *server) loginLink(w http.ResponseWriter, r *http.Request) {
	session, _, err := s.Sessions.RedeemLogin(access.WithAddress(r.Context(), r.RemoteAddr), r.PathValue("secret"))
	if err != nil {
		w.WriteHeader(http.StatusUnauthorized)
		s.render(w, r, loginPage(s.signIn(r), "This link was used already or has expired."))
		return
	}
	s.setCookie(w, r, session)
	s.render(w, r, signedIn(s.signIn(r)))
}

// signIn is the frame of the pages for somebody who is not signed in yet.
func (s *server) signIn(r *http.Request) page {
	return page{Title: "Sign in", Base: s.Base, Next: next(r)}
}

func (s *server) logout(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(cookieName); err == nil {
		if err := s.Sessions.EndSession(r.Context(), c.Value); err != nil {
			s.Log.Warn("end session", "err", err)
		}
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName, Path: s.Base + "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	s.redirect(w, r, "/login")
}

func (s *server) setCookie(w http.ResponseWriter, r *http.Request, session string) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: session, Path: s.Base + "/", MaxAge: int(sessionLife.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: s.Secure(r),
	})
}

// next is the page of ours to go on to, "/runs" unless the query names another one. It is never another site: what a browser
// could read as a host, a scheme or a header is refused.
func next(r *http.Request) string {
	n := r.URL.Query().Get("next")
	if strings.ContainsAny(n, "\\\r\n\t") || strings.Contains(n, "//") {
		return "/runs"
	}
	u, err := url.Parse(n)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" {
		return "/runs"
	}
	if u.Path == "/start" || isPlace(u.Path) {
		return u.RequestURI()
	}
	return "/runs"
}

// nextQuery carries next through the form.
func nextQuery(n string) string { return url.Values{"next": {n}}.Encode() }

// comeBack is where somebody goes on after signing in who asked for this: a page, not a stream and not an action.
func comeBack(r *http.Request) string {
	if r.Method == http.MethodGet {
		return r.URL.RequestURI()
	}
	return path.Dir(r.URL.Path)
}
