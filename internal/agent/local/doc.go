// Package local runs a workflow on this machine without a server: the plan, the needs and the conditions are those of the
// server (internal/plan), every job runs in the agent's own executor (internal/agent/job). What a server adds is missing:
// labels choose nothing, since there is one machine; there is no queue, no retry of lost agents, and nothing is kept.
//
// What a job leaves goes with it. Should this process be killed, a guard process ends what runs and removes the directory; should
// both be killed, the kernel ends the steps' first processes, and the next run clears away the rest.
package local
