// Package dispatch is the leader's loop around placement: it reads a snapshot of the ledger, hands it to placement.Decide, and
// writes down what that decides: assignments, agents to launch and to withdraw, and why every other job waits. Beside it runs
// a loop of duties: dispatches that nobody acknowledged, agents that were lost, jobs that waited too long or that nobody could
// ever run, runs past their deadline, cancels that do not end, and runs that stand still.
//
// Both loops hold nothing that matters: after a crash or a change of leader they read the rows and go on. Every write is a
// leader write under its term and conditional on what was read, so an overlap of two leaders changes nothing twice.
package dispatch
