// Package setting keeps what operators may change while the server runs: the settings of the cluster and of each
// organisation (CLU-26…28). One table of keys (keys.go) makes the typed values, the checks, the JSON, the listing and the
// documentation. A value comes from the row that somebody set, else from the environment, else from the default. Readers get
// it from memory: they never wait and never fail.
package setting

import "time"

// Cluster is the effective settings of the cluster. Lists in it are shared: do not change them.
type Cluster struct {
	MaxForgeBytes           int64         // body of a forge's delivery (ING-7)
	EventLogMaxPayloadBytes int64         // body that is kept with a delivery
	LockFileMaxBytes        int64         // a lock file
	WebhookDedupTTL         time.Duration // a repeat of a delivery is known for so long
	EventTTL                time.Duration // of internal events (EVT-7)
	EventMaxAttempts        int64         // dispatches of an event before it is dead
	EventRatePerMinute      int64         // events that one workflow may emit
	QueueMaxDepth           int64         // waiting jobs beyond which new ones fail (QUE-2)
	UnroutableGrace         time.Duration // QUE-14; 0 never ends a job for it
	ConcurrencyWait         time.Duration // in a concurrency group (CON-6)
	OverflowClaim           time.Duration // a buffered delivery is claimed for so long
	RerouteFlapGrace        time.Duration
	MaxFanoutHosts          int64
	AgentTokenTTL           time.Duration // of a spawned agent's token, until it has registered (D13)
	OwnershipCheckTimeout   time.Duration
	CacheMaxTarballBytes    int64
	CacheTTL                time.Duration
	LockCacheMax            int64
	ContentCacheMax         int64
	GlobalEvalCacheMax      int64
	LockCacheMaxBytes       int64
	ContentCacheMaxBytes    int64
	LockCacheTTL            time.Duration
	ContentCacheTTL         time.Duration
	GlobalEvalRound         time.Duration
	GlobalEvalCandidate     time.Duration
	GlobalEvalWait          time.Duration
	GlobalWorkflows         bool // GLB-2
	CheckRetention          time.Duration
	RunRetention            time.Duration // 0 keeps for ever, as in all of these
	AuditRetention          time.Duration
	ProvenanceRetention     time.Duration
	HeldRunRetention        time.Duration
	ReapInterval            time.Duration
	ReapStranded            time.Duration
	ReapReattempt           time.Duration
	ClaimRetention          time.Duration
	ProvisionBackoffBase    time.Duration // MG-27
	ProvisionBackoffMax     time.Duration
	ProvisionMaxFailures    int64
	FirecrackerSocketWait   time.Duration
	VerifiedIssuer          string // of the dashboard; "" is none
}

// Org is the effective settings of one organisation. Lists and maps in it are shared: do not change them.
type Org struct {
	AllowedRepos         []RepoRule // authors of global workflows; nil is everybody, an empty list nobody (GLB-2)
	DeniedRepos          []RepoRule // sources that no global workflow may follow
	HTTPNpmRegistries    bool
	UntrustedDockerfiles bool
	UserCacheQuotaBytes  int64
	UserCacheTTL         time.Duration
	ArtifactQuotaBytes   int64
	ArtifactTTL          time.Duration
	ArtifactMaxBytes     int64
	ArtifactMaxPerRun    int64
	DispatchAck          time.Duration // QUE-10
	IngestMaxConcurrency int64
	SpawnTimeout         time.Duration // bounds one start of an agent (MG-14)
	RerouteSpawnWindow   time.Duration
	RerouteAck           time.Duration
	RerouteMaxHops       int64
	RerouteSpawnAttempts int64
	RerouteSpawnBackoff  time.Duration
	BackupStaleness      time.Duration
	QueueTimeout         time.Duration // QUE-3; 0 waits for ever
	ApprovalExpiry       time.Duration
	SelfApproval         bool
	SandboxCapabilities  []string
	SandboxHostNetwork   bool
	DashboardWrites      map[string]string // operation → enabled, encrypted, disabled; one that is missing is enabled
}

// RepoRule names repositories by a pattern, of one source or of all.
type RepoRule struct {
	RoutingKey string `json:"routingKey,omitempty"`
	Pattern    string `json:"pattern"`
}

// Scopes of settings, as in the table settings.
const (
	ClusterScope = "cluster"
	orgPrefix    = "org:"
)

// OrgScope is the scope of an organisation's settings.
func OrgScope(orgID string) string { return orgPrefix + orgID }
