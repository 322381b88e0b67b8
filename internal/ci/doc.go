// Package ci is the domain: what a run, a job, a step, an event, an agent, labels and resources are, which states
// they may take and which moves between states are legal. It imports no other kici package and does no I/O, so every
// other room may speak its words.
package ci
