// Package cgroup holds processes together in leaves of the cgroup v2 hierarchy, so that all that an agent or a job has started can be
// ended at once, whatever it did to its sessions and parents (D19), and bounds what they use together: by controllers of v2 where they
// are delegated, else by those of v1. The node makes a leaf for each agent, the agent leaves for its job and steps below it. A Meter
// tells whether a bound was hit. It imports no other kici package.
package cgroup
