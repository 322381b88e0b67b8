package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/setting"
)

// shutDoor is a door that is shut while people are inside.
type shutDoor struct {
	*doors
	shut atomic.Bool
}

func (d *shutDoor) Session(ctx context.Context, s string) (access.Principal, error) {
	if d.shut.Load() {
		return access.Principal{}, access.ErrUnauthenticated
	}
	return d.doors.Session(ctx, s)
}

// noSettings is an organisation that has set nothing.
type noSettings struct{ settings }

func (noSettings) Org(string) setting.Org { return setting.Org{} }

// A stream ends soon after the session that opened it.
func TestStreamEndsWithItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := &shutDoor{doors: &doors{}}
		s := &server{Deps: Deps{Sessions: door, Settings: noSettings{}, Secure: func(*http.Request) bool { return false }}, mux: http.NewServeMux()}
		s.page("GET /x/live", access.RunRead, func(_ http.ResponseWriter, r *http.Request, _ caller) error {
			<-r.Context().Done()
			return nil
		})
		r := httptest.NewRequest(http.MethodGet, "/x/live", nil)
		r.AddCookie(&http.Cookie{Name: cookieName, Value: "owner"})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.mux.ServeHTTP(httptest.NewRecorder(), r)
		}()
		time.Sleep(time.Hour)
		select {
		case <-ended:
			t.Fatal("the stream ended while somebody was signed in")
		default:
		}
		door.shut.Store(true)
		began := time.Now()
		<-ended
		if took := time.Since(began); took > sessionEvery {
			t.Errorf("the stream went on for %v", took)
		}
	})
}
