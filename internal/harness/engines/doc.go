// Package engines tests the whole program on real container engines: a server, agents in containers, and what happens to a job when the
// container, or the server, is killed.
package engines
