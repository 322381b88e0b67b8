package ci

// DefaultOrg is the organisation that the first start makes, and that operates the cluster (D2).
const DefaultOrg = "default"

// AgentState is where an agent is in its life (DESIGN §2). Until AgentGone the row counts against every cap.
type AgentState string

// The agent states, in order of life.
const (
	AgentRequested AgentState = "requested" // decided by placement; nothing exists yet
	AgentStarting  AgentState = "starting"  // the node is about to call, or has called, Create
	AgentBooting   AgentState = "booting"   // Create returned; not registered yet
	AgentOnline    AgentState = "online"    // registered at least once
	AgentDraining  AgentState = "draining"  // finishing; takes no new work
	AgentEnding    AgentState = "ending"    // Delete is repeated until nothing is left
	AgentGone      AgentState = "gone"
)

// Live reports whether the agent still holds its reservation.
func (s AgentState) Live() bool { return s != "" && s != AgentGone }

// Reasons an agent ended (agents.gone_reason).
const (
	GoneJobComplete  = "job-complete"
	GoneIdle         = "idle"
	GoneMadeRoom     = "made-room"     // a warm one, for a job that waited for the room that it took
	GoneWithdrawn    = "withdrawn"     // its job ended before it was needed
	GoneLaunchFailed = "launch-failed" // Create failed or the process died before registering
	GoneSpawnTimeout = "spawn-timeout" // never registered in time
	GoneLost         = "lost"          // died or stayed away after registering
	GoneShutdown     = "shutdown"      // --on-stop end
	GoneRevoked      = "token-revoked"
	GoneUnresponsive = "unresponsive" // dispatch was not acknowledged, or heartbeats stopped
	GoneDisconnected = "disconnected" // a static agent left
)
