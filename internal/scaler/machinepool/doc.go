// Package machinepool shares the CPU and memory of one machine between several orchestrators that run on it (spec ML). A pool is a file
// which all of them read and write under a lock; each puts a reservation there before it starts an agent, and takes it away when nothing of
// the agent is left. What a node has there is compared with its ledger at every look: the ledger rules.
package machinepool
