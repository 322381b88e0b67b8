package webhookcmd

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// receiver records deliveries and answers with the next of its codes (the last one for ever).
type receiver struct {
	mu    sync.Mutex
	codes []int
	got   []delivery
}

type delivery struct{ id, event, signature, body string }

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, delivery{req.Header.Get("X-Delivery-Id"), req.Header.Get("X-Event-Type"), req.Header.Get("X-Signature-256"), string(body)})
	code := r.codes[0]
	if len(r.codes) > 1 {
		r.codes = r.codes[1:]
	}
	w.WriteHeader(code)
	if code >= 300 {
		_, _ = io.WriteString(w, `{"error":"the server says no"}`)
		return
	}
	_, _ = io.WriteString(w, `{"accepted":true}`)
}

func send(t *testing.T, codes []int, in string, args ...string) (got []delivery, out, errOut string, err error) {
	t.Helper()
	r := &receiver{codes: codes}
	srv := httptest.NewServer(r)
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("top secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := Commands()[0]
	var o, e bytes.Buffer
	cmd.SetIn(strings.NewReader(in))
	cmd.SetOut(&o)
	cmd.SetErr(&e)
	cmd.SetArgs(append([]string{"send", "--url", srv.URL + "/webhook/default/generic/demo", "--secret-file", file}, args...))
	err = cmd.Execute()
	return r.got, o.String(), e.String(), err
}

func sign(body string) string {
	m := hmac.New(sha256.New, []byte("top secret"))
	m.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(m.Sum(nil))
}

func TestSendSignsTheBody(t *testing.T) {
	for _, args := range [][]string{{"--data", "hello"}, {"--data", "-"}} {
		got, out, _, err := send(t, []int{202}, "hello", append(args, "--event", "deploy", "--delivery-id", "7")...)
		if err != nil || len(got) != 1 || got[0] != (delivery{"7", "deploy", sign("hello"), "hello"}) || out != "{\"accepted\":true}\n" {
			t.Errorf("%v: %+v %q %v", args, got, out, err)
		}
	}
}

func TestSendRepeatsWithTheSameID(t *testing.T) {
	got, _, _, err := send(t, []int{503, 429, 202}, "")
	if err != nil || len(got) != 3 || got[0].id == "" || got[0].id != got[1].id || got[1].id != got[2].id {
		t.Errorf("%+v %v", got, err)
	}
}

func TestSendFailsForGood(t *testing.T) {
	got, _, _, err := send(t, []int{401}, "")
	if err == nil || !strings.Contains(err.Error(), "the server says no") || len(got) != 1 {
		t.Errorf("%+v %v", got, err)
	}
	if _, _, _, err := send(t, []int{500}, "", "--retry-for", "50ms"); err == nil {
		t.Error("an unavailable server is not an error")
	}
}

const (
	zero = "0000000000000000000000000000000000000000"
	one  = "1111111111111111111111111111111111111111"
)

func TestHookSendsBranchesAndTags(t *testing.T) {
	in := zero + " " + one + " refs/heads/main\n" + one + " " + zero + " refs/tags/v1\n" + zero + " " + one + " refs/notes/x\nrubbish\n"
	got, out, errOut, err := send(t, []int{202}, in, "--hook", "--actor", "ann")
	if err != nil || out != "" || errOut != "" || len(got) != 2 {
		t.Fatalf("%+v %q %q %v", got, out, errOut, err)
	}
	want := `{"after":"` + one + `","before":"` + zero + `","pusher":{"name":"ann"},"ref":"refs/heads/main"}`
	if got[0].body != want || got[0].event != "push" || got[0].signature != sign(want) || got[0].id == got[1].id {
		t.Errorf("%+v", got)
	}
}

func TestHookNeverFails(t *testing.T) {
	in := zero + " " + one + " refs/heads/main\n"
	for name, args := range map[string][]string{
		"refused":     {"--hook"},
		"no secret":   {"--hook", "--secret-file", "/nowhere/secret"},
		"unreachable": {"--hook", "--retry-for", "50ms", "--url", "http://127.0.0.1:1/webhook/default/generic/demo"},
		"bad address": {"--hook", "--url", "::/demo"},
	} {
		_, _, errOut, err := send(t, []int{401}, in, args...)
		if err != nil || !strings.Contains(errOut, "warning") || !strings.Contains(errOut, "kici source trigger demo") {
			t.Errorf("%s: %v %q", name, err, errOut)
		}
	}
}
