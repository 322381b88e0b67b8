package read

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow/cron"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// RegistrationFilter narrows a list of registrations.
type RegistrationFilter struct {
	RoutingKey, Repo, Workflow string
	Trigger                    string // a type
	State                      string // enabled or disabled
	Global                     bool
	Cursor                     string
	Limit                      int
}

// Registrations is a page of registrations, by repository and workflow, and how many there are.
func (r *Reads) Registrations(ctx context.Context, s Scope, f RegistrationFilter) (client.RegistrationList, error) {
	after, err := parseWords(f.Cursor, 3)
	if err != nil {
		return client.RegistrationList{}, err
	}
	disabled, ok := map[string]string{"": "", "enabled": "false", "disabled": "true"}[f.State]
	if !ok {
		return client.RegistrationList{}, fmt.Errorf("%w: state is enabled or disabled, not %q", ErrInvalid, f.State)
	}
	if s.RoutingKey != "" && f.RoutingKey != "" && s.RoutingKey != f.RoutingKey {
		return client.RegistrationList{}, fmt.Errorf("this source %w", ErrForbidden)
	}
	p := db.ReadRegistrationsParams{
		OrgID: s.OrgID, RoutingKey: s.RoutingKey, Repo: f.Repo, Workflow: f.Workflow, Disabled: disabled, OnlyGlobal: f.Global,
		AfterRepo: after[0], AfterWorkflow: after[1], AfterID: after[2],
	}
	if p.RoutingKey == "" {
		p.RoutingKey = f.RoutingKey
	}
	if f.Trigger != "" {
		p.TriggerLike = "%," + strings.NewReplacer("%", "", ",", "").Replace(f.Trigger) + ",%"
	}
	limit := clamp(f.Limit, DefaultLimit, MaxLimit)
	p.MaxRows = int32(limit + 1)
	out := client.RegistrationList{Registrations: []client.Registration{}}
	err = r.view(ctx, func(q *db.Queries) error {
		rows, err := q.ReadRegistrations(ctx, p)
		if err != nil {
			return err
		}
		if len(rows) > limit {
			rows = rows[:limit]
			last := rows[limit-1]
			out.NextCursor = words(last.Repo, last.Workflow, last.ID)
		}
		out.Registrations = make([]client.Registration, len(rows))
		for i, x := range rows {
			out.Registrations[i] = registration(x)
		}
		out.Total, err = q.CountRegistrations(ctx, db.CountRegistrationsParams{
			OrgID: p.OrgID, RoutingKey: p.RoutingKey, Repo: p.Repo, Workflow: p.Workflow, TriggerLike: p.TriggerLike, Disabled: p.Disabled, OnlyGlobal: p.OnlyGlobal,
		})
		return err
	})
	return out, err
}

func registration(x db.ReadRegistrationsRow) client.Registration {
	out := client.Registration{
		ID: x.ID, Source: x.SourceName.String, RoutingKey: x.RoutingKey, Repo: x.Repo, Workflow: x.Workflow, File: x.SourceFile,
		Triggers: strings.FieldsFunc(x.TriggerTypes, func(r rune) bool { return r == ',' }), SHA: x.CommitSha,
		DefaultBranch: x.DefaultBranch, Disabled: x.Disabled, Global: x.IsGlobal,
	}
	if x.SyncedAt > 0 {
		at := client.TimeOf(x.SyncedAt)
		out.RegisteredAt = &at
	}
	return out
}

// Registration is one registration, by id, by repository#workflow, or by the name of a workflow that only one repository has.
func (r *Reads) Registration(ctx context.Context, s Scope, ref string) (client.RegistrationDetail, error) {
	var out client.RegistrationDetail
	err := r.view(ctx, func(q *db.Queries) error {
		x, err := oneRegistration(ctx, q, s, ref)
		if err != nil {
			return err
		}
		out = client.RegistrationDetail{
			Registration: registration(db.ReadRegistrationsRow{
				ID: x.ID, RoutingKey: x.RoutingKey, Repo: x.Repo, Workflow: x.Workflow, TriggerTypes: x.TriggerTypes, CommitSha: x.CommitSha,
				DefaultBranch: x.DefaultBranch, SourceFile: x.SourceFile, Disabled: x.Disabled, IsGlobal: x.IsGlobal, SyncedAt: x.SyncedAt, SourceName: x.SourceName,
			}),
			On: []client.RegistrationTrigger{}, Jobs: []client.WorkflowJob{}, Schedules: []client.Schedule{},
		}
		describe(&out, x.LockEntry)
		rows, err := q.ReadSchedules(ctx, db.ReadSchedulesParams{OrgID: s.OrgID, RegistrationID: x.ID, MaxRows: 100})
		for _, row := range rows {
			out.Schedules = append(out.Schedules, r.schedule(row))
		}
		return err
	})
	return out, err
}

func oneRegistration(ctx context.Context, q *db.Queries, s Scope, ref string) (db.ReadRegistrationRow, error) {
	rows, err := q.ReadRegistration(ctx, s.OrgID, ref)
	if err != nil {
		return db.ReadRegistrationRow{}, err
	}
	for _, x := range rows {
		if x.ID == ref {
			return x, s.check(x.RoutingKey, "this registration")
		}
	}
	var mine []db.ReadRegistrationRow
	for _, x := range rows {
		if s.RoutingKey == "" || s.RoutingKey == x.RoutingKey {
			mine = append(mine, x)
		}
	}
	switch {
	case len(mine) == 1:
		return mine[0], nil
	case len(mine) > 1:
		return mine[0], fmt.Errorf("%w: %q is registered more than once, for instance as %s#%s and %s#%s; name it by its id", ErrInvalid, ref,
			mine[0].Repo, mine[0].Workflow, mine[1].Repo, mine[1].Workflow)
	case len(rows) > 0:
		return rows[0], s.check(rows[0].RoutingKey, "this registration")
	}
	return db.ReadRegistrationRow{}, fmt.Errorf("registration %q %w", ref, ErrNotFound)
}

// describe adds what the stored workflow says.
func describe(out *client.RegistrationDetail, entry string) {
	var w lock.Workflow
	if err := json.Unmarshal([]byte(entry), &w); err != nil {
		out.Problem = "this version of kici cannot read it: " + err.Error()
		return
	}
	for _, t := range w.On {
		out.On = append(out.On, client.RegistrationTrigger{Type: t.Type, Filters: filters(t)})
	}
	for _, j := range w.Jobs {
		out.Jobs = append(out.Jobs, workflowJob(j))
	}
}

// filters are the fields of a trigger as its JSON has them: lists joined, anything else as JSON.
func filters(t lock.Trigger) map[string]string {
	var fields map[string]json.RawMessage
	text, err := json.Marshal(t)
	if err != nil || json.Unmarshal(text, &fields) != nil {
		return nil
	}
	delete(fields, "type")
	out := make(map[string]string, len(fields))
	for name, raw := range fields {
		var list []string
		var one string
		switch {
		case json.Unmarshal(raw, &one) == nil:
			out[name] = one
		case json.Unmarshal(raw, &list) == nil:
			out[name] = strings.Join(list, ", ")
		default:
			out[name] = string(raw)
		}
	}
	return out
}

// ScheduleFilter narrows a list of schedules.
type ScheduleFilter struct {
	Repo, Workflow string
	Cursor         string
	Limit          int
}

// Schedules is a page of schedules, by repository and workflow, with the next instants of each.
func (r *Reads) Schedules(ctx context.Context, s Scope, f ScheduleFilter) (client.ScheduleList, error) {
	after, err := parseWords(f.Cursor, 5)
	if err != nil {
		return client.ScheduleList{}, err
	}
	limit := clamp(f.Limit, DefaultLimit, MaxLimit)
	out := client.ScheduleList{Schedules: []client.Schedule{}}
	err = r.view(ctx, func(q *db.Queries) error {
		rows, err := q.ReadSchedules(ctx, db.ReadSchedulesParams{
			OrgID: s.OrgID, RoutingKey: s.RoutingKey, Repo: f.Repo, Workflow: f.Workflow, AfterRepo: after[0], AfterWorkflow: after[1],
			AfterID: after[2], AfterExpression: after[3], AfterTimezone: after[4], MaxRows: int32(limit + 1),
		})
		if len(rows) > limit {
			rows = rows[:limit]
			last := rows[limit-1]
			out.NextCursor = words(last.Repo, last.Workflow, last.RegistrationID, last.Expression, last.Timezone)
		}
		for _, row := range rows {
			out.Schedules = append(out.Schedules, r.schedule(row))
		}
		return err
	})
	return out, err
}

// shownInstants is how many instants of a schedule are shown.
const shownInstants = 3

func (r *Reads) schedule(x db.ReadSchedulesRow) client.Schedule {
	out := client.Schedule{
		RegistrationID: x.RegistrationID, Repo: x.Repo, Workflow: x.Workflow, Expression: x.Expression, Timezone: x.Timezone,
		Disabled: x.Disabled, LastEventID: x.LastEventID, LastRunID: x.LastRunID.String, Error: x.Error, Next: []client.Time{},
	}
	if x.LastEventID != "" {
		at := client.TimeOf(x.LastFiredAt)
		out.LastFiredAt = &at
	}
	if x.Disabled || x.Error != "" || !x.NextAt.Valid {
		return out
	}
	s, err := cron.Parse(x.Expression, x.Timezone)
	if err != nil {
		out.Error = err.Error()
		return out
	}
	after := time.UnixMilli(max(r.now(), x.LastFiredAt))
	for range shownInstants {
		next, ok := s.Next(after)
		if !ok {
			break
		}
		out.Next = append(out.Next, client.TimeOf(next.UnixMilli()))
		after = next
	}
	return out
}

// words is a cursor of texts, and parseWords reads it; "" is n empty ones.
func words(texts ...string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Join(texts, "\x00")))
}

func parseWords(cursor string, n int) ([]string, error) {
	if cursor == "" {
		return make([]string, n), nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	parts := strings.Split(string(b), "\x00")
	if err != nil || len(parts) != n || !validText(parts) {
		return nil, fmt.Errorf("%w: the cursor is not one that this server gave", ErrInvalid)
	}
	return parts, nil
}

func validText(parts []string) bool {
	for _, p := range parts {
		if strings.ToValidUTF8(p, "") != p {
			return false
		}
	}
	return true
}
