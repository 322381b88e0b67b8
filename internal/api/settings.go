package api

import (
	"context"
	"encoding/json"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/setting"
)

// settings gives and changes settings (setting.Service).
type settings interface {
	List(ctx context.Context, scope string) (setting.Listing, error)
	Apply(ctx context.Context, c setting.Change) (setting.Changed, error)
	Version() int64
}

type settingsInput struct {
	Body map[string]json.RawMessage `doc:"Keys and values; null makes a key follow its default again"`
}

func patch(path, summary string) endpoint {
	e := put(path, summary)
	e.method = "PATCH"
	return e
}

func (a *API) settingRoutes() {
	cluster := func(*caller) string { return setting.ClusterScope }
	org := func(c *caller) string { return setting.OrgScope(c.Scope.OrgID) }
	handle(a, get("/cluster-settings", "List the settings of the cluster").cluster(), right{"secret.read", "cluster_settings.read"}, a.listSettings(cluster))
	handle(a, patch("/cluster-settings", "Change settings of the cluster").cluster(), right{"secret.write", "cluster_settings.update"}, a.changeSettings(cluster))
	handle(a, get("/cluster-settings/propagation", "Say which version of the settings each instance has").cluster(),
		right{"secret.read", "cluster_settings.propagation.read"}, a.propagation)
	// The second path is the one under which the predecessor had all settings of an organisation.
	for _, path := range []string{"/org-settings", "/org-settings/global-workflows"} {
		handle(a, get(path, "List the settings of the organisation").global(), right{"secret.read", "org_settings.read"}, a.listSettings(org))
		handle(a, patch(path, "Change settings of the organisation").global(), right{"secret.write", "org_settings.update"}, a.changeSettings(org))
	}
}

func (a *API) listSettings(scopeOf func(*caller) string) func(context.Context, *caller, *struct{}) (client.Settings, error) {
	return func(ctx context.Context, c *caller, _ *struct{}) (client.Settings, error) {
		scope := scopeOf(c)
		l, err := a.d.Settings.List(ctx, scope)
		if err != nil {
			return client.Settings{}, err
		}
		out := client.Settings{Scope: scope, Version: l.Version, UpdatedAt: instant(l.UpdatedAt), UpdatedBy: l.UpdatedBy, Settings: make([]client.Setting, len(l.Values))}
		for i, v := range l.Values {
			out.Settings[i] = settingOf(v)
		}
		return out, nil
	}
}

func settingOf(v setting.Value) client.Setting {
	s := client.Setting{
		Key: v.Name, Value: v.Value, Default: v.Default, Source: v.Source, Type: v.Type, Unit: v.Unit, Variable: v.Variable(), Restart: v.Restart,
		NoEffect: v.Later, About: v.About,
	}
	if v.Type == setting.TypeNumber {
		least, most := v.Min, v.Max
		if v.ZeroOff {
			least = 0
		}
		s.Min, s.Max = &least, &most
	}
	return s
}

func (a *API) changeSettings(scopeOf func(*caller) string) func(context.Context, *caller, *settingsInput) (client.SettingsChanged, error) {
	return func(ctx context.Context, c *caller, in *settingsInput) (client.SettingsChanged, error) {
		out := client.SettingsChanged{Changed: []client.SettingChange{}}
		if len(in.Body) == 0 {
			return out, badRequest("name at least one setting")
		}
		scope := scopeOf(c)
		done, err := a.d.Settings.Apply(ctx, setting.Change{Scope: scope, By: c.Label, Set: in.Body})
		if err != nil {
			return out, err
		}
		out.Version = done.Version
		for _, k := range done.Keys {
			out.Changed = append(out.Changed, client.SettingChange{Key: k.Name, Old: k.Old, New: k.New})
		}
		for _, k := range append(setting.ClusterKeys(), setting.OrgKeys()...) {
			if _, named := in.Body[k.Name]; named && k.Later {
				out.Warnings = append(out.Warnings, k.Name+" is kept, but has no effect in this version")
			}
		}
		c.meta = map[string]any{"version": out.Version, "changed": out.Changed}
		return out, nil
	}
}

func (a *API) propagation(ctx context.Context, _ *caller, _ *struct{}) (client.Propagation, error) {
	l, err := a.d.Settings.List(ctx, setting.ClusterScope)
	if err != nil {
		return client.Propagation{}, err
	}
	o, err := a.d.Cluster.Overview(ctx)
	if err != nil {
		return client.Propagation{}, err
	}
	out := client.Propagation{Version: l.Version, Applied: a.d.Settings.Version(), Instances: []client.PropagationStatus{}}
	for _, m := range o.Members {
		applied := m.SettingsVersion
		if m.InstanceID == a.d.Cluster.Self() {
			applied = out.Applied
		}
		out.Instances = append(out.Instances, client.PropagationStatus{
			InstanceID: m.InstanceID, Name: m.Name, Applied: applied, Behind: applied < l.Version, Live: m.Live,
		})
	}
	return out, nil
}
