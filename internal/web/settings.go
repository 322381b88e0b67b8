package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/setting"
)

// settings gives and changes what may change while the server runs (setting.Service).
type settings interface {
	List(ctx context.Context, scope string) (setting.Listing, error)
	Apply(ctx context.Context, c setting.Change) (setting.Changed, error)
	Version() int64
	Org(orgID string) setting.Org
}

func (s *server) settingPages() {
	s.page("GET /settings", access.SecretRead, s.orgSettings, unscoped)
	s.write("POST /settings/key/{key}", "org_settings.update", access.SecretWrite, s.setOrgSetting, unscoped)
	s.page("GET /settings/cluster", access.SecretRead, s.clusterSettings, operators)
	s.write("POST /settings/cluster/key/{key}", "cluster_settings.update", access.SecretWrite, s.setClusterSetting, operators)
	s.page("GET /settings/tokens", access.TokenManage, s.tokens, unscoped)
	s.write("POST /settings/tokens", "token.manage", access.TokenManage, s.createToken, unscoped)
	s.write("POST /settings/tokens/{token}/revoke", "token.manage", access.TokenManage, s.revokeToken, unscoped)
	s.page("GET /settings/organisations", access.RunRead, s.orgs, operators)
	s.write("POST /settings/organisations", "org.create", access.TokenManage, s.createOrg, operators)
}

// settingTabs are the pages of settings that the caller may open.
func settingTabs(c caller, here string) []tab {
	tabs := []tab{{"Organisation " + c.OrgID, "/settings", here == "org"}}
	if operators(c) == "" {
		tabs = append(tabs, tab{"Cluster", "/settings/cluster", here == "cluster"}, tab{"Organisations", "/settings/organisations", here == "orgs"})
	}
	if c.Can(access.TokenManage) {
		tabs = append(tabs, tab{"Tokens", "/settings/tokens", here == "tokens"})
	}
	return tabs
}

func (s *server) orgSettings(w http.ResponseWriter, r *http.Request, c caller) error {
	return s.showSettings(w, r, c, setting.OrgScope(c.OrgID), fault{})
}

func (s *server) clusterSettings(w http.ResponseWriter, r *http.Request, c caller) error {
	return s.showSettings(w, r, c, setting.ClusterScope, fault{})
}

func (s *server) setOrgSetting(w http.ResponseWriter, r *http.Request, c caller) error {
	return s.set(w, r, c, setting.OrgScope(c.OrgID))
}

func (s *server) setClusterSetting(w http.ResponseWriter, r *http.Request, c caller) error {
	return s.set(w, r, c, setting.ClusterScope)
}

// operationOf is the change of a scope's settings: as the dashboard may be told not to offer it, and in the access log.
func operationOf(scope string) string {
	if scope == setting.ClusterScope {
		return "cluster_settings.update"
	}
	return "org_settings.update"
}

// fault is what is wrong with a value that somebody has sent.
type fault struct{ Key, Given, Says string }

func (s *server) showSettings(w http.ResponseWriter, r *http.Request, c caller, scope string, f fault) error {
	l, err := s.Settings.List(r.Context(), scope)
	if err != nil {
		return err
	}
	v := settingsView{Listing: l, Fault: f, CanSet: c.offers(operationOf(scope), access.SecretWrite), Title: "Settings of the organisation", At: "/settings", Done: r.URL.Query().Get("done")}
	here := "org"
	if scope == setting.ClusterScope {
		v.Title, v.At, here = "Settings of the cluster", "/settings/cluster", "cluster"
	}
	v.page, v.Tabs = s.frame(c, "settings", v.Title), settingTabs(c, here)
	if f.Says != "" {
		w.WriteHeader(http.StatusBadRequest)
	}
	s.render(w, r, settingsPage(v))
	return nil
}

// set changes one setting; what is wrong is shown at its field.
func (s *server) set(w http.ResponseWriter, r *http.Request, c caller, scope string) error {
	l, err := s.Settings.List(r.Context(), scope)
	if err != nil {
		return err
	}
	name, given := r.PathValue("key"), strings.TrimSpace(r.PostFormValue("value"))
	var value json.RawMessage
	known := false
	for _, v := range l.Values {
		if v.Name == name {
			known, value = true, formValue(v.Key, given)
		}
	}
	if !known {
		return errNoSetting
	}
	if r.PostFormValue("default") != "" {
		value = json.RawMessage("null")
	}
	done, err := s.Settings.Apply(r.Context(), setting.Change{Scope: scope, By: c.Label, Set: map[string]json.RawMessage{name: value}})
	s.auditMeta(r, c, operationOf(scope), name, err, map[string]any{"version": done.Version, "changed": changes(done)})
	var bad *setting.Invalid
	if errors.As(err, &bad) {
		return s.showSettings(w, r, c, scope, fault{name, given, strings.TrimPrefix(bad.Error(), name+" ")})
	}
	if err != nil {
		return err
	}
	at := "/settings"
	if scope == setting.ClusterScope {
		at = "/settings/cluster"
	}
	s.redirect(w, r, at+"?done="+name+"#set-"+name)
	return nil
}

var errNoSetting = errors.New("no such setting")

// changes are those of the access log, as the API records them.
func changes(done setting.Changed) []client.SettingChange {
	out := []client.SettingChange{}
	for _, k := range done.Keys {
		out = append(out, client.SettingChange{Key: k.Name, Old: k.Old, New: k.New})
	}
	return out
}

// formValue is a field's text as JSON. What is no JSON becomes a text, which the setting's own check refuses with a sentence.
func formValue(k setting.Key, text string) json.RawMessage {
	switch {
	case k.Type == setting.TypeText && text == "":
		return json.RawMessage("null")
	case k.Type == setting.TypeText || !json.Valid([]byte(text)):
		quoted, _ := json.Marshal(text)
		return quoted
	}
	return json.RawMessage(text)
}

// fieldText is a value as its field shows it.
func fieldText(v setting.Value) string {
	var text string
	if v.Type == setting.TypeText && json.Unmarshal(v.Value, &text) == nil {
		return text
	}
	return string(v.Value)
}

// given is what the field of a setting holds: what somebody sent that cannot be, else the value.
func (v settingsView) given(s setting.Value) string {
	if v.Fault.Key == s.Name {
		return v.Fault.Given
	}
	return fieldText(s)
}

// live and later are the settings that this version reads, and the others.
func (v settingsView) live() []setting.Value { return v.where(false) }

func (v settingsView) later() []setting.Value { return v.where(true) }

func (v settingsView) where(later bool) (out []setting.Value) {
	for _, x := range v.Values {
		if x.Later == later {
			out = append(out, x)
		}
	}
	return out
}

// laterOpen reports whether the list of settings without effect must be seen.
func (v settingsView) laterOpen() bool {
	for _, x := range v.later() {
		if x.Name == v.Fault.Key || x.Name == v.Done {
			return true
		}
	}
	return false
}

// headline says how many values are not the usual ones.
func (v settingsView) headline() string {
	n := 0
	for _, x := range v.Values {
		if x.Source != setting.FromDefault {
			n++
		}
	}
	if n == 0 {
		return v.Title + ": all as they come"
	}
	return v.Title + ": " + count(n, "is set", "are set")
}

func sourceOfValue(v setting.Value) string {
	switch v.Source {
	case setting.FromLive:
		return "set here"
	case setting.FromEnvironment:
		return "from " + v.Variable()
	}
	return "default"
}

// human is a value of a setting for people: 3600000 ms is 1 h.
func human(v setting.Value, raw json.RawMessage) string {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		switch string(raw) {
		case "true":
			return "on"
		case "false":
			return "off"
		case "null", `""`:
			return "none"
		}
		return string(raw)
	}
	if n == 0 && v.ZeroOff {
		return "off"
	}
	switch v.Unit {
	case "ms":
		return span(n)
	case "seconds":
		return span(n * 1000)
	case "hours":
		return span(n * 3600_000)
	case "days":
		return count(int(n), "day", "days")
	case "bytes":
		return byteText(n)
	}
	return strconv.FormatInt(n, 10)
}

// span is a length of time in its largest units without a rest.
func span(ms int64) string {
	for _, u := range []struct {
		size      int64
		one, many string
	}{{86400_000, "day", "days"}, {3600_000, "hour", "hours"}, {60_000, "minute", "minutes"}, {1000, "second", "seconds"}} {
		if ms >= u.size && ms%u.size == 0 {
			return count(int(ms/u.size), u.one, u.many)
		}
	}
	return fmt.Sprintf("%d ms", ms)
}

func byteText(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size {
			return fmt.Sprintf("%.4g %s", float64(n)/float64(u.size), u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// bounds says what a number may be.
func bounds(k setting.Key) string {
	if k.Type != setting.TypeNumber {
		return ""
	}
	text := "at least " + number(k.Min)
	if k.ZeroOff && k.Min > 0 {
		text = "0 for off, else " + text
	} else if k.ZeroOff {
		text = "0 for off"
	}
	if k.Max < 1<<40 {
		text += ", at most " + number(k.Max)
	}
	if k.Unit != "" {
		text = "in " + k.Unit + ", " + text
	}
	return text
}
