// Package netpolicy says what an agent may reach, and reads it from text: the networkPolicy of scalers.yaml. It is pure; hostnet makes
// it true on a host.
package netpolicy
