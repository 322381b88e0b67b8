package forgetest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// exchange is one recorded request and its answer.
type exchange struct {
	method, target, body string
	status               int
	header               http.Header
	answer               string
}

// Replay plays the recorded exchanges of a file, in order, and fails the test on any other request and on those that did not come.
// It returns the address of the API. A file is
//
//	> POST /repos/acme/web/hooks
//	> {"active": true}
//	< 201
//	< Link: <{base}/repos/acme/web/hooks?page=2>; rel="next"
//	<
//	< {"id": 1}
//
// Bodies are JSON and compared as such; a line without body compares none. {base} is the address; lines that begin with # are comments.
func Replay(t testing.TB, file string) (base string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := &player{t: t, left: parseExchanges(t, file, string(text))}
	server := httptest.NewServer(p)
	p.base = server.URL
	t.Cleanup(func() {
		server.Close()
		if len(p.left) > 0 {
			t.Errorf("%s: %s %s was not asked", file, p.left[0].method, p.left[0].target)
		}
	})
	return server.URL
}

type player struct {
	t    testing.TB
	base string
	mu   sync.Mutex
	left []exchange
}

// ServeHTTP implements http.Handler.
func (p *player) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	if len(p.left) == 0 || p.left[0].method != r.Method || p.left[0].target != r.URL.RequestURI() {
		p.t.Errorf("unexpected request: %s %s %s", r.Method, r.URL.RequestURI(), body)
		http.Error(w, `{"message":"unexpected request"}`, http.StatusTeapot)
		return
	}
	e := p.left[0]
	p.left = p.left[1:]
	if r.Header.Get("Authorization") != "Bearer "+Token && r.Header.Get("Private-Token") != Token {
		p.t.Errorf("%s %s came without the token", r.Method, r.URL.RequestURI())
	}
	if e.body != "" && !sameJSON(e.body, string(body)) {
		p.t.Errorf("%s %s\n got %s\nwant %s", r.Method, r.URL.RequestURI(), body, e.body)
	}
	for name, values := range e.header {
		for _, v := range values {
			w.Header().Add(name, strings.ReplaceAll(v, "{base}", p.base))
		}
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
	}
	w.WriteHeader(e.status)
	_, _ = io.WriteString(w, strings.ReplaceAll(e.answer, "{base}", p.base))
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

func parseExchanges(t testing.TB, file, text string) []exchange {
	t.Helper()
	var out []exchange
	answering, inHeader := true, false
	for n, line := range strings.Split(text, "\n") {
		kind, rest, _ := strings.Cut(line, " ")
		switch {
		case kind == "" || strings.HasPrefix(line, "#"):
		case kind == ">" && answering: // a new request
			method, target, _ := strings.Cut(rest, " ")
			out = append(out, exchange{method: method, target: target, header: http.Header{}})
			answering = false
		case kind == ">":
			out[len(out)-1].body += rest + "\n"
		case kind == "<" && !answering: // its answer
			status, err := strconv.Atoi(rest)
			if err != nil {
				t.Fatalf("%s:%d: status %q", file, n+1, rest)
			}
			out[len(out)-1].status = status
			answering, inHeader = true, true
		case kind == "<" && len(out) > 0:
			e := &out[len(out)-1]
			if inHeader {
				if name, value, ok := strings.Cut(rest, ": "); ok && !strings.HasPrefix(rest, "{") && !strings.HasPrefix(rest, "[") {
					e.header.Add(name, value)
					continue
				}
				inHeader = false
			}
			e.answer += rest + "\n"
		default:
			t.Fatalf("%s:%d: a line begins with >, < or #", file, n+1)
		}
	}
	return out
}
