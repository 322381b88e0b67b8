// Package plan is pure: it turns a workflow and an event into jobs with needs, and says what becomes of a job once the jobs
// that it needs have ended. It knows neither rows nor clocks, so that the server (internal/run, over SQL) and a run on this
// machine without a server (internal/agent/local, in memory) come to the same results by the same code.
package plan
