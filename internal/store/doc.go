// Package store keeps everything that must survive: one SQL schema and one set of queries for SQLite and PostgreSQL, and
// the rules of writing to them. It is the only room that knows SQL; what rows mean belongs to the services.
//
// Write is the only way to change anything. When it returns nil the change is on disk. On SQLite one goroutine owns the
// one writing connection and puts the requests that wait into one transaction, because a disk gives a few thousand
// synchronous commits a second and a server needs more (D27); one that fails takes nobody else with it. On PostgreSQL each Write is a
// transaction of its own, repeated when the database asks for it. So a transaction function may run more than once, and on
// SQLite everybody waits for it: it reads and writes rows, calls nothing else and never blocks.
//
// Both engines keep one rule more: after a statement has failed its transaction is lost, whatever the function returns.
// Expect a conflict with ON CONFLICT, not by looking at the error.
//
// Notifications only make loops look sooner. They are sent after the commit, never before, and may be lost.
package store
