package ci

// Kinds of notes about a run: what happened to it, or to one of its jobs, that its rows do not show by themselves. They are stored
// (run_notes.kind), so a kind is never renamed.
const (
	NoteCancelAsked = "cancel_asked"  // somebody asked for its end
	NoteForced      = "cancel_forced" // its jobs are told to stop without grace
	NoteSuperseded  = "superseded"    // a newer run of its concurrency group replaced it
	NoteHeld        = "held"          // it waits for a place in its concurrency group or its fan-out
	NotePromoted    = "promoted"      // it was given that place
	NoteLinkLost    = "link_lost"     // the agent of a running job does not answer
	NoteLinkBack    = "link_back"     // it answers again, with the job
	NoteRequeued    = "requeued"      // an agent had the job and did not start it
	NoteJobsAdded   = "jobs_added"    // a running step added jobs
	NoteTimedOut    = "timed_out"     // a deadline passed
	NoteReleased    = "released"      // a person let a held run or job go on
	NoteChainEnded  = "chain_ended"   // its end tells nobody: the chain of runs that start each other is too long
	NoteRefused     = "refused"       // its agent's network policy refused connections
	NoteDiskLow     = "disk_low"      // the disk that its agent works on is almost full
	NoteDropped     = "dropped"       // it has more notes than are kept
)

// NoteKinds is every kind, for tests and docs.
var NoteKinds = []string{
	NoteCancelAsked, NoteForced, NoteSuperseded, NoteHeld, NotePromoted, NoteLinkLost, NoteLinkBack, NoteRequeued, NoteJobsAdded,
	NoteTimedOut, NoteReleased, NoteChainEnded, NoteRefused, NoteDiskLow, NoteDropped,
}
