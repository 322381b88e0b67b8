// Package obs makes the logger and the metrics registry, and carries request and trace ids through contexts. It imports
// no other kici package.
package obs
