package cli

import "github.com/kici-go/kici/client"

// registry is what the fake server has registered.
func registry(runID string) map[string]any {
	nightly := client.Registration{
		ID: "reg-1", Source: "shop", RoutingKey: "generic:default:src-1", Repo: "acme/shop", Workflow: "nightly", File: ".kici/workflows/nightly.yaml",
		Triggers: []string{"push", "schedule"}, SHA: "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d", DefaultBranch: "main", RegisteredAt: atp(0),
	}
	off := nightly
	off.ID, off.Workflow, off.Disabled, off.Triggers = "reg-2", evil, true, []string{"push"}
	schedules := []client.Schedule{
		{
			RegistrationID: "reg-1", Repo: "acme/shop", Workflow: "nightly", Expression: "30 4 * * *", Timezone: "Europe/Berlin", LastFiredAt: atp(-3000),
			LastEventID: "ev-1", LastRunID: runID, Next: []client.Time{at(7200), at(93600), at(180000)},
		},
		{RegistrationID: "reg-1", Repo: "acme/shop", Workflow: "nightly", Expression: "0 4 * *", Timezone: "UTC", Next: []client.Time{}, Error: "it must have 5 fields, or 6 with seconds, got 4"},
	}
	detail := client.RegistrationDetail{
		Registration: nightly, Schedules: schedules, Jobs: []client.WorkflowJob{{Name: "build", RunsOn: []string{"linux"}}},
		On: []client.RegistrationTrigger{{Type: "push", Filters: map[string]string{"branches": "main, release/*"}}, {Type: "schedule", Filters: map[string]string{"cronExpression": "30 4 * * *", "timezone": "Europe/Berlin"}}},
	}
	registered := client.Registered{WorkflowCount: 1, RegistryVersion: 7, Repo: "acme/shop", SHA: nightly.SHA, Workflows: []string{"nightly"}}
	return map[string]any{
		"GET /registrations":                  client.RegistrationList{Registrations: []client.Registration{nightly, off}, Total: 40, NextCursor: "abc"},
		"GET /registrations/nightly":          detail,
		"POST /registrations/register-manual": registered,
		"POST /registrations/refresh":         registered,
		"POST /registrations/nightly/enable":  nightly,
		"POST /registrations/nightly/disable": off,
		"DELETE /registrations/reg-1":         map[string]bool{"deleted": true},
		"POST /registrations/nightly/run":     client.NewRun{RunID: runID, Number: 483},
		"GET /schedules":                      client.ScheduleList{Schedules: schedules},
	}
}
