package access

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/store/storetest"
)

func TestFailedLoginsAreLimited(t *testing.T) {
	f := setUp(t, storetest.SQLiteDatabase(t))
	from := func(a string) context.Context { return WithAddress(t.Context(), a) }
	for i := range failuresAllowed {
		if _, err := f.Authenticate(from(fmt.Sprintf("192.0.2.1:%d", i)), "wrong"); !errors.Is(err, ErrUnauthenticated) {
			t.Fatal(i, err)
		}
	}
	if _, err := f.Authenticate(from("192.0.2.1:99"), "wrong"); !errors.Is(err, ErrRateLimited) {
		t.Error(err)
	}
	if _, err := f.NewSession(from("192.0.2.1"), f.token); !errors.Is(err, ErrRateLimited) {
		t.Error("the login form still listens:", err)
	}
	if _, _, err := f.RedeemLogin(from("192.0.2.1"), "x"); !errors.Is(err, ErrRateLimited) {
		t.Error(err)
	}
	if _, err := f.Authenticate(from("192.0.2.1"), f.token); err != nil {
		t.Error("a good token behind the same address is locked out:", err)
	}
	if _, err := f.Authenticate(from("192.0.2.2"), "wrong"); !errors.Is(err, ErrUnauthenticated) {
		t.Error("another address is limited:", err)
	}
	f.pass(failureWindow)
	if _, err := f.NewSession(from("192.0.2.1"), f.token); err != nil {
		t.Error(err)
	}
}

func TestNetwork(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "192.0.2.1": "192.0.2.1", "[::ffff:192.0.2.1]:80": "192.0.2.1",
		"[2001:db8::1]:80": "2001:db8::/64", "2001:db8::2": "2001:db8::/64", "[fe80::1%eth0]:1": "fe80::/64", "@": "@", "": "",
	} {
		if got := network(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestLimiterIsBounded(t *testing.T) {
	l := limiter{seen: map[string]window{}}
	now := time.Now()
	for i := range 3 * addressesKept {
		l.failed(fmt.Sprint(i), now)
	}
	if len(l.seen) > addressesKept {
		t.Errorf("%d addresses are kept", len(l.seen))
	}
	l.sweep(now.Add(failureWindow))
	if len(l.seen) != 0 {
		t.Error("old windows stay")
	}
}
