package generic

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/source"
)

func open(t testing.TB, options string) *Source {
	t.Helper()
	s, err := New(source.Config{Name: "hooks", Options: []byte(options), Secrets: map[string]string{"webhook": "top secret"}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func header(kv ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(kv); i += 2 {
		h.Set(kv[i], kv[i+1])
	}
	return h
}

func TestVerify(t *testing.T) {
	body := []byte("anything")
	signed := source.Sign("top secret", body)
	for name, tc := range map[string]struct {
		options string
		header  http.Header
		client  string
		ok      bool
	}{
		"hmac":                     {`{}`, header("X-Signature-256", signed), "", true},
		"hmac without prefix":      {`{}`, header("X-Signature-256", signed[7:]), "", true},
		"hmac own header":          {`{"verificationConfig":{"headerName":"x-hub-signature"}}`, header("X-Hub-Signature", signed), "", true},
		"hmac default header only": {`{"verificationConfig":{"headerName":"x-hub-signature"}}`, header("X-Signature-256", signed), "", false},
		"hmac wrong":               {`{}`, header("X-Signature-256", source.Sign("x", body)), "", false},
		"hmac missing":             {`{}`, header(), "", false},
		"bearer":                   {`{"verificationMethod":"bearer_token"}`, header("Authorization", "Bearer top secret"), "", true},
		"bearer lower case":        {`{"verificationMethod":"bearer_token"}`, header("Authorization", "bearer top secret"), "", true},
		"bearer own header":        {`{"verificationMethod":"bearer_token","verificationConfig":{"headerName":"x-token"}}`, header("X-Token", "top secret"), "", true},
		"bearer wrong":             {`{"verificationMethod":"bearer_token"}`, header("Authorization", "Bearer top secre"), "", false},
		"bearer missing":           {`{"verificationMethod":"bearer_token"}`, header(), "", false},
		"address":                  {`{"verificationMethod":"ip_allowlist","verificationConfig":{"allowedIps":["192.0.2.7"]}}`, header(), "192.0.2.7", true},
		"network":                  {`{"verificationMethod":"ip_allowlist","verificationConfig":{"allowedIps":["10.0.0.0/8","2001:db8::/32"]}}`, header(), "2001:db8::1", true},
		"mapped address":           {`{"verificationMethod":"ip_allowlist","verificationConfig":{"allowedIps":["10.0.0.0/8"]}}`, header(), "::ffff:10.1.1.1", true},
		"other address":            {`{"verificationMethod":"ip_allowlist","verificationConfig":{"allowedIps":["10.0.0.0/8"]}}`, header("X-Forwarded-For", "10.0.0.1"), "192.0.2.7", false},
		"none":                     {`{"verificationMethod":"none"}`, header(), "", true},
	} {
		var client netip.Addr
		if tc.client != "" {
			client = netip.MustParseAddr(tc.client)
		}
		err := open(t, tc.options).Verify(source.Request{Header: tc.header, Body: body, Client: client})
		if (err == nil) != tc.ok || err != nil && !errors.Is(err, source.ErrUnauthorized) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, method := range []string{HMAC, Bearer} {
		s := open(t, `{"verificationMethod":"`+method+`"}`)
		s.secret = ""
		req := source.Request{Header: header("X-Signature-256", source.Sign("", body), "Authorization", ""), Body: body}
		if err := s.Verify(req); !errors.Is(err, source.ErrMisconfigured) {
			t.Errorf("%s without a secret: %v, want ErrMisconfigured", method, err)
		}
		if err := s.Check(t.Context()); !errors.Is(err, source.ErrMisconfigured) {
			t.Errorf("%s: Check: %v", method, err)
		}
	}
}

func TestRead(t *testing.T) {
	body := `{"kind":"deploy","meta":{"ids":[{"id":42}]}}`
	for name, tc := range map[string]struct {
		options string
		header  http.Header
		body    string
		event   string
		id      string
		keyed   bool
	}{
		"nothing":               {`{}`, header(), body, "default", "", false},
		"x-event-type":          {`{}`, header("X-Event-Type", "e", "X-Request-Id", "r"), body, "e", "r", false},
		"x-delivery-id is best": {`{}`, header("X-Delivery-Id", "d", "X-Request-Id", "r"), body, "default", "d", false},
		"own header":            {`{"eventTypeHeader":"x-kind","idempotencyKeyHeader":"x-key"}`, header("X-Kind", "k", "X-Key", "1", "X-Event-Type", "e"), body, "k", "1", true},
		"path":                  {`{"eventTypePath":"$.kind","idempotencyKeyPath":"meta.ids.0.id"}`, header("X-Event-Type", "e"), body, "deploy", "42", true},
		"header before path":    {`{"eventTypeHeader":"x-kind","eventTypePath":"kind"}`, header("X-Kind", "k"), body, "k", "", false},
		"missing path":          {`{"eventTypePath":"nope.x","idempotencyKeyPath":"meta.ids.7.id"}`, header("X-Event-Type", "e"), body, "e", "", false},
		"path into a form":      {`{"eventTypePath":"kind"}`, header("Content-Type", "application/x-www-form-urlencoded"), "kind=f&x=1", "f", "", false},
	} {
		got, err := open(t, tc.options).Read(source.Request{Header: tc.header, Body: []byte(tc.body)})
		if err != nil || got.Event != tc.event || got.ID != tc.id || got.Keyed != tc.keyed {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
	s := open(t, `{"verificationMethod":"bearer_token","verificationConfig":{"headerName":"X-My-Token"},"stripHeaders":["X-Private"]}`)
	got, _ := s.Read(source.Request{Header: header("X-My-Token", "t", "X-Private", "p", "Cookie", "c", "X-Fine", "f"), Body: []byte("{}")})
	if len(got.Headers) != 1 || got.Headers["x-fine"] != "f" {
		t.Errorf("stored headers %v", got.Headers)
	}
	long, _ := s.Read(source.Request{Header: header("X-Event-Type", strings.Repeat("e", 5000), "X-Delivery-Id", strings.Repeat("d", 5000))})
	if len(long.Event) > source.MaxEventBytes || len(long.ID) > source.MaxIDBytes {
		t.Errorf("names are not bounded: %d %d", len(long.Event), len(long.ID))
	}
	other, _ := s.Read(source.Request{Header: header("X-Delivery-Id", strings.Repeat("d", 5001))})
	if other.ID == long.ID {
		t.Error("two long ids became one")
	}
}

func TestNormalizeBodies(t *testing.T) {
	for name, tc := range map[string]struct{ contentType, body, want string }{
		"object":       {"application/json", ` {"a":1} `, `{"a":1}`},
		"no type":      {"", `{"a":1}`, `{"a":1}`},
		"list":         {"application/json", `[1]`, `{"value":[1]}`},
		"form":         {"application/x-www-form-urlencoded; charset=utf-8", `a=1&b=x+y&b=z`, `{"a":"1","b":["x y","z"]}`},
		"text":         {"text/plain", `hello "you"`, `{"body":"hello \"you\""}`},
		"empty":        {"", ``, `{"body":""}`},
		"not unicode":  {"", "\xff", `{"body":"` + "\ufffd" + `"}`},
		"deep":         {"", strings.Repeat("[", 20_000), ""},
		"number":       {"", `7`, `{"value":7}`},
		"broken JSON":  {"application/json", `{"a":`, `{"body":"{\"a\":"}`},
		"null":         {"application/json", `null`, `{"value":null}`},
		"form of JSON": {"application/x-www-form-urlencoded", `{"a":1}`, `{"a":1}`},
	} {
		s := open(t, `{}`)
		ev, err := s.Normalize(t.Context(), source.Delivery{Event: "e", Body: []byte(tc.body), Headers: map[string]string{"content-type": tc.contentType}})
		if err != nil || !json.Valid(ev.Payload) || tc.want != "" && string(ev.Payload) != tc.want || ev.Type != "generic_webhook" || ev.Name != "e" || ev.Source != "hooks" {
			t.Errorf("%s: %s %+v %v", name, ev.Payload, ev, err)
		}
	}
	_, err := open(t, `{}`).Normalize(t.Context(), source.Delivery{Body: []byte("%zz"), Headers: map[string]string{"content-type": "application/x-www-form-urlencoded"}})
	if !errors.Is(err, source.ErrInvalid) {
		t.Errorf("broken form: %v", err)
	}
}

func TestOptions(t *testing.T) {
	for text, want := range map[string]string{
		`{"verificationMethod":"magic"}`:                             "verificationMethod",
		`{"verificationMethod":"ip_allowlist"}`:                      "allowedIps",
		`{"verificationConfig":{"allowedIps":["10.0.0.0/99"]}}`:      "10.0.0.0/99",
		`{"maxPayloadBytes":99999999}`:                               "maxPayloadBytes",
		`{"rateLimitRpm":-1}`:                                        "rateLimitRpm",
		`{"dedupWindowSeconds":-1}`:                                  "dedupWindowSeconds",
		`{"eventTypeHeader":"a b"}`:                                  "eventTypeHeader",
		`{"allowedEvent":["x"]}`:                                     "allowedEvent",
		`{"verificationMethod":"magic","rateLimitRpm":-1,"x":1} bad`: "x",
	} {
		if _, err := New(source.Config{Name: "hooks", Options: []byte(text)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	in := open(t, ``).Intake()
	if in.MaxBody != 1<<20 || in.RPM != 600 || in.DedupMs != 300_000 || !in.Secret || len(in.Allowed) != 0 {
		t.Errorf("defaults %+v", in)
	}
	in = open(t, `{"verificationMethod":"none","maxPayloadBytes":10,"rateLimitRpm":0,"dedupWindowSeconds":1,"allowedEvents":["a"]}`).Intake()
	if in.MaxBody != 10 || in.RPM != 0 || in.DedupMs != 1000 || in.Secret || len(in.Allowed) != 1 {
		t.Errorf("set %+v", in)
	}
}

func TestHasNoRepository(t *testing.T) {
	s := open(t, `{"repository":"acme/demo"}`)
	if s.HasRepo() || s.Repository() != "acme/demo" {
		t.Error("wrong repository")
	}
	_, err1 := s.Resolve(t.Context(), "main")
	_, err2 := s.Files(t.Context(), "x")
	_, err3 := s.Clone(t.Context())
	_, err4 := s.ChangedFiles(t.Context(), "", "")
	_, err5 := s.DefaultBranch(t.Context())
	for _, err := range []error{err1, err2, err3, err4, err5} {
		if !errors.Is(err, source.ErrNotFound) {
			t.Errorf("%v, want ErrNotFound", err)
		}
	}
}

func FuzzReadAndNormalize(f *testing.F) {
	s := open(f, `{"eventTypePath":"kind","idempotencyKeyPath":"ids.0.id"}`)
	f.Add("application/json", []byte(`{"kind":"x","ids":[{"id":7}]}`))
	f.Add("application/x-www-form-urlencoded", []byte(`kind=x&ids=1`))
	f.Add("text/plain", []byte("\xff\x00"))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		h := header("Content-Type", contentType)
		got, err := s.Read(source.Request{Header: h, Body: body})
		if err != nil || got.Event == "" || len(got.Event) > source.MaxEventBytes || len(got.ID) > source.MaxIDBytes {
			t.Fatalf("%+v %v", got, err)
		}
		ev, err := s.Normalize(t.Context(), got.Delivery)
		if err != nil {
			if !errors.Is(err, source.ErrInvalid) {
				t.Error(err)
			}
			return
		}
		if !json.Valid(ev.Payload) || ev.Payload[0] != '{' {
			t.Errorf("payload %q is not an object", ev.Payload)
		}
	})
}
