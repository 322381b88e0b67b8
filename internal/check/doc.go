// Package check shows runs beside their commits: a commit status for each workflow and each of its jobs (PIPE-7).
//
// What a commit should say is derived from the rows of the run and its jobs, and compared with what was posted, so nothing is
// queued and nothing is lost: a run counts its changes in checks_changed, in the transaction of the change, and this room works
// off the runs whose count is ahead of what was posted. Only the latest state is ever posted, however long the forge was away.
// Posting never holds a run up and never fails one (XC-74).
//
// Several coordinators may work at once. Whoever posts for a run holds its lease, and no two hold one for runs that write under
// the same names, so that the last state is the last that arrives.
package check
