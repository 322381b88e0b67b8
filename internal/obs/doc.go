// Package obs makes the logger and the metrics registry, and carries request ids through contexts, so that a line in the
// log, an answer to a client and a row in the audit log can be put side by side. It imports no other kici package.
package obs
