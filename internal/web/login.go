package web

import (
	"errors"
	"net/http"
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
	s.render(w, r, loginPage(page{Title: "Sign in", Base: s.Base}, ""))
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
		s.render(w, r, loginPage(page{Title: "Sign in", Base: s.Base}, message))
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
		s.render(w, r, loginPage(page{Title: "Sign in", Base: s.Base}, "This link was used already or has expired."))
		return
	}
	s.setCookie(w, r, session)
	s.redirect(w, r, next(r))
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

// next is the page of ours to go on to: a path, never another site.
func next(r *http.Request) string {
	n := r.URL.Query().Get("next")
	if strings.HasPrefix(n, "/runs") && !strings.Contains(n, "\\") && !strings.Contains(n, "//") {
		return n
	}
	return "/runs"
}
