package forgetest

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/git"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/forge"
)

// secret is known to no seed, so that nothing that the fuzzer makes may pass.
var secret = rand.Text()

// Fuzz feeds a dialect with whole webhooks: none passes without the secret, none breaks anything, and what becomes an event is safe to
// hand to git. Seeds are recorded webhooks (Request).
func Fuzz(f *testing.F, d forge.Dialect, seeds ...source.Request) {
	for _, r := range seeds {
		var text strings.Builder
		_ = r.Header.Write(&text)
		f.Add(text.String(), r.Body)
	}
	s := Open(f, d, "")
	f.Fuzz(func(t *testing.T, header string, body []byte) {
		r, err := parseRequest([]byte(header + "\r\n"))
		if err != nil {
			return
		}
		r.Body = body
		for _, key := range []string{secret, ""} {
			if err := d.Verify(key, r); !errors.Is(err, source.ErrUnauthorized) && !errors.Is(err, source.ErrMisconfigured) {
				t.Fatalf("secret %q: %v, want ErrUnauthorized", key, err)
			}
		}
		got, err := s.Read(r)
		if err != nil {
			if !errors.Is(err, source.ErrInvalid) {
				t.Fatalf("Read: %v", err)
			}
			return
		}
		if err := received(got); err != nil {
			t.Fatalf("Read: %v: %+v", err, got)
		}
		if err := normalized(t, s, got.Delivery); err != nil {
			t.Fatal(err)
		}
	})
}

func received(r source.Received) error {
	switch {
	case r.Event == "" || len(r.Event) > source.MaxEventBytes || len(r.ID) > source.MaxIDBytes || len(r.Action) > source.MaxEventBytes:
		return errors.New("names are not bounded")
	case r.Headers[source.TriggerHeader] != "":
		return errors.New("a sender wrote the header that is ours")
	}
	for name := range r.Headers {
		if name != strings.ToLower(name) {
			return fmt.Errorf("header %q is not in lower case", name)
		}
	}
	return nil
}

func normalized(t *testing.T, s *forge.Source, d source.Delivery) error {
	before := bytes.Clone(d.Body)
	ev, err := s.Normalize(t.Context(), d)
	switch {
	case !bytes.Equal(before, d.Body):
		return errors.New("the body was changed by Normalize")
	case errors.Is(err, source.ErrInvalid) || errors.Is(err, source.ErrIgnored):
		return nil
	case err != nil:
		return fmt.Errorf("normalize: %w", err)
	case git.CheckSHA(ev.SHA) != nil || git.CheckRef(ev.Ref) != nil || ev.Type == "" || ev.Fork || ev.Deleted || ev.Repo != Repository:
		return fmt.Errorf("unsafe event: %+v", ev)
	case ev.Before != "" && git.CheckSHA(ev.Before) != nil || ev.BaseSHA != "" && git.CheckSHA(ev.BaseSHA) != nil:
		return fmt.Errorf("unsafe commit: %+v", ev)
	}
	for _, branch := range []string{ev.Branch, ev.Tag, ev.SourceBranch, ev.TargetBranch, ev.DefaultBranch} {
		if branch != "" && git.CheckRef("refs/heads/"+branch) != nil {
			return fmt.Errorf("unsafe branch %q: %+v", branch, ev)
		}
	}
	return nil
}
