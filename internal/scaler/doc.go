// Package scaler is the node: the part of an orchestrator that owns local resources. It reads scalers.yaml, publishes what it
// offers as rows for placement, and makes the ledger's rows of agents true: one loop compares rows with what the backends find
// on the host, in both directions, and starts, ends and closes. A row stands before its thing is made and until nothing of
// it is left, so capacity never drifts, and after any crash the same loop simply runs again.
package scaler
