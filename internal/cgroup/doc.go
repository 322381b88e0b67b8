// Package cgroup holds processes together in leaves of the cgroup v2 hierarchy, so that all that an agent or a job has started can be
// ended at once, whatever it did to its sessions and parents (D19). No controller is enabled. The node makes a leaf for each
// agent, the agent leaves for its job and steps below it. It imports no other kici package.
package cgroup
