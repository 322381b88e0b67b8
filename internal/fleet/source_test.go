package fleet

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// The files of a commit go to who holds the job and nobody else; what cannot be finished does not look finished.
func TestJobSource(t *testing.T) {
	r := newRig(t)
	p, d, _ := dispatched(r)
	other, _ := r.connect(r.managed("scaler-fake-2", "linux"), register("scaler-fake-2"))
	path := "/api/v1/agent/jobs/" + d.JobID + "/source"
	r.archive = func(w io.Writer) error { _, err := io.WriteString(w, "a tar"); return err }
	if code, data := p.request(http.MethodGet, path, nil); code != http.StatusOK || string(data) != "a tar" {
		t.Errorf("%d %s", code, data)
	}
	if code, _ := other.request(http.MethodGet, path, nil); code != http.StatusGone {
		t.Errorf("somebody else's: %d", code)
	}
	r.archive = func(io.Writer) error { return errors.New("no such commit") }
	if code, data := p.request(http.MethodGet, path, nil); code != http.StatusBadGateway || !strings.Contains(string(data), "no such commit") {
		t.Errorf("%d %s", code, data)
	}
	r.archive = func(w io.Writer) error {
		_, _ = io.WriteString(w, strings.Repeat("x", 100_000))
		return errors.New("it broke off")
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set(headerAgent, p.id)
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	if err == nil {
		t.Error("a part looks like the whole")
	}
}
