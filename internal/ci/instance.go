package ci

import "time"

// InstanceTimeout is how long nothing may be heard from a server of the cluster before it counts as lost, for placement, recovery and
// display alike. It beats every 10 s (QUE-13, CLU-7).
const InstanceTimeout = 120 * time.Second

// InstanceLive reports whether a server whose last heartbeat was at heartbeatAt is alive at now. One that stopped cleanly has 0.
func InstanceLive(heartbeatAt, now int64) bool {
	return heartbeatAt > now-InstanceTimeout.Milliseconds()
}
