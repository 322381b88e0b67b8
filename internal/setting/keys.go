package setting

import (
	"time"

	"github.com/kici-go/kici/internal/ci"
)

type (
	clusterKey = keyOf[Cluster]
	orgKey     = keyOf[Org]
	ms         = time.Duration
)

// clusterKeys are the settings of the cluster, in the order in which they are shown.
var clusterKeys = []*clusterKey{
	count("maxGithubPayloadBytes", func(c *Cluster) *int64 { return &c.MaxForgeBytes }, 26214400, 1024, "largest delivery of a forge"),
	count("eventLogMaxPayloadBytes", func(c *Cluster) *int64 { return &c.EventLogMaxPayloadBytes }, 5242880, 1024, "largest body that stays with a delivery when it is done"),
	count("lockFileMaxBytes", func(c *Cluster) *int64 { return &c.LockFileMaxBytes }, 5242880, 1024, "the files of one commit's workflows together").most(5242880),
	span("webhookDedupTtlMs", func(c *Cluster) *ms { return &c.WebhookDedupTTL }, 86400000, 1000, "how long a repeat of a delivery is known as one"),
	span("eventRouterEventTtlSeconds", func(c *Cluster) *ms { return &c.EventTTL }, 604800, 1, "how long an internal event is kept"),
	count("eventRouterMaxDispatchAttempts", func(c *Cluster) *int64 { return &c.EventMaxAttempts }, 5, 1, "attempts at an internal event before it is dead"),
	count("eventRouterRateLimitPerWorkflowPerMinute", func(c *Cluster) *int64 { return &c.EventRatePerMinute }, 100, 1, "events that one workflow may emit in a minute"),
	count("queueMaxDepth", func(c *Cluster) *int64 { return &c.QueueMaxDepth }, 50000, 1, "waiting jobs beyond which a new one fails"),
	span("unroutableGraceMs", func(c *Cluster) *ms { return &c.UnroutableGrace }, 120000, 0, "how long a job that nothing could ever run waits").off(),
	span("concurrencyWaitTimeoutMs", func(c *Cluster) *ms { return &c.ConcurrencyWait }, 3600000, 1000, "how long a run or job waits for its concurrency group"),
	span("ingestOverflowClaimTimeoutMs", func(c *Cluster) *ms { return &c.OverflowClaim }, 60000, 60000, "after how long a delivery that a server has and no longer works on is taken up by another"),
	span("rerouteFlapGraceMs", func(c *Cluster) *ms { return &c.RerouteFlapGrace }, 120000, 1000, "how long a peer must be away before its jobs are routed again").later(),
	count("maxFanoutHosts", func(c *Cluster) *int64 { return &c.MaxFanoutHosts }, 1024, 1, "hosts that one job may fan out to").later(),
	span("agentTokenTtlMs", func(c *Cluster) *ms { return &c.AgentTokenTTL }, 3600000, 1000, "time in which a started agent must register"),
	span("ownershipDbCheckTimeoutMs", func(c *Cluster) *ms { return &c.OwnershipCheckTimeout }, 5000, 100, "time for asking the database who owns a job").later(),
	count("cacheMaxTarballBytes", func(c *Cluster) *int64 { return &c.CacheMaxTarballBytes }, 524288000, 1024, "largest cached archive").later(),
	span("cacheTtlDays", func(c *Cluster) *ms { return &c.CacheTTL }, 30, 1, "how long a cached archive is kept after its last use").later(),
	count("lockfileCacheMax", func(c *Cluster) *int64 { return &c.LockCacheMax }, 500, 1, "lock files kept in memory").most(100000).restart(),
	count("contentCacheMax", func(c *Cluster) *int64 { return &c.ContentCacheMax }, 500, 1, "files kept in memory").most(100000).restart().later(),
	count("globalEvalCacheMax", func(c *Cluster) *int64 { return &c.GlobalEvalCacheMax }, 500, 1, "verdicts about global workflows kept in memory").most(100000).restart().later(),
	count("lockfileCacheMaxBytes", func(c *Cluster) *int64 { return &c.LockCacheMaxBytes }, 67108864, 1024, "memory for lock files").restart(),
	count("contentCacheMaxBytes", func(c *Cluster) *int64 { return &c.ContentCacheMaxBytes }, 67108864, 1024, "memory for files").restart().later(),
	span("lockfileCacheTtlMs", func(c *Cluster) *ms { return &c.LockCacheTTL }, 3600000, 1000, "how long a lock file stays in memory").restart(),
	span("contentCacheTtlMs", func(c *Cluster) *ms { return &c.ContentCacheTTL }, 3600000, 1000, "how long a file stays in memory").restart().later(),
	span("globalEvalRoundTimeoutMs", func(c *Cluster) *ms { return &c.GlobalEvalRound }, 120000, 1000, "time for one round of deciding global workflows").later(),
	span("globalEvalCandidateTimeoutMs", func(c *Cluster) *ms { return &c.GlobalEvalCandidate }, 20000, 1000, "time for deciding one global workflow").later(),
	span("globalEvalWaitTimeoutMs", func(c *Cluster) *ms { return &c.GlobalEvalWait }, 240000, 1000, "time that a delivery waits for the decision").later(),
	toggle("globalWorkflowsEnabled", func(c *Cluster) *bool { return &c.GlobalWorkflows }, false, "workflows of one repository may follow others").guard(func(c *Cluster) { c.GlobalWorkflows = false }),
	span("checkRunTrackingTtlDays", func(c *Cluster) *ms { return &c.CheckRetention }, 7, 0, "how long posted commit statuses are remembered").off(),
	span("runRetentionDays", func(c *Cluster) *ms { return &c.RunRetention }, 90, 0, "how long finished runs are kept, with jobs and logs").off(),
	span("auditRetentionDays", func(c *Cluster) *ms { return &c.AuditRetention }, 365, 0, "how long the access log is kept").off(),
	span("provenanceRetentionDays", func(c *Cluster) *ms { return &c.ProvenanceRetention }, 365, 0, "how long attestations are kept").off().later(),
	span("heldRunRetentionDays", func(c *Cluster) *ms { return &c.HeldRunRetention }, 90, 0, "how long decided approvals are kept").off().later(),
	span("scalerReapIntervalMs", func(c *Cluster) *ms { return &c.ReapInterval }, 60000, 5000, "how often provisions are looked through").later(),
	span("scalerReapStrandedTimeoutMs", func(c *Cluster) *ms { return &c.ReapStranded }, 1800000, 60000, "age at which a provision that nobody needs is ended").later(),
	span("scalerReapReattemptIntervalMs", func(c *Cluster) *ms { return &c.ReapReattempt }, 600000, 60000, "time between two attempts to end one").later(),
	span("scalerClaimRetentionMs", func(c *Cluster) *ms { return &c.ClaimRetention }, 3600000, 0, "how long used claim codes are kept").later(),
	span("scalerProvisionBackoffBaseMs", func(c *Cluster) *ms { return &c.ProvisionBackoffBase }, 30000, 1000, "pause after the first failed start of an agent"),
	span("scalerProvisionBackoffMaxMs", func(c *Cluster) *ms { return &c.ProvisionBackoffMax }, 900000, 1000, "longest pause after failed starts"),
	count("scalerProvisionMaxConsecutiveFailures", func(c *Cluster) *int64 { return &c.ProvisionMaxFailures }, 5, 1, "failed starts in a row from which the reason of a waiting job says where to look"),
	span("firecrackerApiSocketWaitMs", func(c *Cluster) *ms { return &c.FirecrackerSocketWait }, 30000, 1000, "time for a Firecracker process to open its socket").later(),
	address("dashboardVerifiedIssuer", func(c *Cluster) *string { return &c.VerifiedIssuer }, "who may vouch for users of the dashboard").guard(func(c *Cluster) { c.VerifiedIssuer = "" }).later(),
}

// Operations that the dashboard may be told not to offer, and what it may be told.
var (
	dashboardOperations = []string{
		"run.cancel", "run.rerun", "run.trigger", "delivery.replay", "event_dlq.manage", "registration.update", "source.manage", "org_settings.update",
		"cluster_settings.update", "token.manage", "org.create", "orchestrator.drain", "scheduled_job.trigger",
	}
	dashboardValues = []string{"enabled", "encrypted", "disabled"}
)

// DashboardOperations are what the dashboard can do, as dashboardWrites names it.
func DashboardOperations() []string { return dashboardOperations }

// orgKeys are the settings of an organisation, in the order in which they are shown.
var orgKeys = []*orgKey{
	repos("allowedRepos", func(o *Org) *[]RepoRule { return &o.AllowedRepos }, "repositories whose global workflows count; null is all").guard(func(o *Org) { o.AllowedRepos = []RepoRule{} }),
	repos("deniedRepos", func(o *Org) *[]RepoRule { return &o.DeniedRepos }, "repositories that no global workflow follows"),
	toggle("allowHttpNpmRegistries", func(o *Org) *bool { return &o.HTTPNpmRegistries }, false, "package registries without TLS").guard(func(o *Org) { o.HTTPNpmRegistries = false }).later(),
	toggle("allowUntrustedDockerfileBuilds", func(o *Org) *bool { return &o.UntrustedDockerfiles }, false, "image builds of contributors that are not trusted").guard(func(o *Org) { o.UntrustedDockerfiles = false }).later(),
	count("userCacheQuotaBytes", func(o *Org) *int64 { return &o.UserCacheQuotaBytes }, 5368709120, 1, "room for caches").later(),
	span("userCacheTtlMs", func(o *Org) *ms { return &o.UserCacheTTL }, 604800000, 1, "how long a cache is kept after its last use").later(),
	count("artifactQuotaBytes", func(o *Org) *int64 { return &o.ArtifactQuotaBytes }, 21474836480, 1, "room for artifacts").later(),
	span("artifactTtlMs", func(o *Org) *ms { return &o.ArtifactTTL }, 2592000000, 1, "how long an artifact is kept").later(),
	count("artifactMaxBytes", func(o *Org) *int64 { return &o.ArtifactMaxBytes }, 1073741824, 1, "largest artifact").later(),
	count("artifactMaxPerRun", func(o *Org) *int64 { return &o.ArtifactMaxPerRun }, 50, 1, "artifacts of one run").later(),
	span("dispatchAckTimeoutMs", func(o *Org) *ms { return &o.DispatchAck }, 10000, 1000, "time for an agent to acknowledge a job"),
	count("ingestMaxConcurrency", func(o *Org) *int64 { return &o.IngestMaxConcurrency }, 32, 1, "deliveries of the organisation that one server receives at once; more wait up to three seconds"),
	span("scalerSpawnTimeoutMs", func(o *Org) *ms { return &o.SpawnTimeout }, 300000, 1000, "time for the start of an agent"),
	span("rerouteSpawnWindowMs", func(o *Org) *ms { return &o.RerouteSpawnWindow }, 90000, 1000, "time for a peer to show progress with a job").later(),
	span("rerouteAckTimeoutMs", func(o *Org) *ms { return &o.RerouteAck }, 15000, 1000, "time for a peer to accept a job").later(),
	count("rerouteMaxHops", func(o *Org) *int64 { return &o.RerouteMaxHops }, 3, 1, "peers that a job may be passed on to").later(),
	count("rerouteSpawnMaxAttempts", func(o *Org) *int64 { return &o.RerouteSpawnAttempts }, 3, 1, "attempts of a peer to start an agent").later(),
	span("rerouteSpawnRetryBackoffMs", func(o *Org) *ms { return &o.RerouteSpawnBackoff }, 5000, 0, "pause between them").later(),
	span("backupStalenessWarnHours", func(o *Org) *ms { return &o.BackupStaleness }, 24, 1, "age of the last backup at which diagnose warns").later(),
	span("queueTimeoutMs", func(o *Org) *ms { return &o.QueueTimeout }, 3600000, 0, "how long a job waits for an agent").off(),
	span("approvalExpirySeconds", func(o *Org) *ms { return &o.ApprovalExpiry }, 86400, 1, "how long an approval is waited for").later(),
	toggle("allowSelfApproval", func(o *Org) *bool { return &o.SelfApproval }, true, "people may approve what they started").guard(func(o *Org) { o.SelfApproval = false }).later(),
	words("sandboxAllowedCapabilities", func(o *Org) *[]string { return &o.SandboxCapabilities }, ci.Capabilities, "Linux capabilities that a job may ask for in its sandbox").guard(func(o *Org) { o.SandboxCapabilities = nil }),
	toggle("sandboxAllowHostNetwork", func(o *Org) *bool { return &o.SandboxHostNetwork }, false, "jobs may ask for the machine's network in their sandbox").guard(func(o *Org) { o.SandboxHostNetwork = false }),
	choices("dashboardWrites", func(o *Org) *map[string]string { return &o.DashboardWrites }, dashboardOperations, dashboardValues, "what the dashboard may do: enabled, encrypted (only over TLS) or disabled"),
}

// rule is something that two or three keys must agree on.
type rule[T any] struct {
	keys  []string
	holds func(*T) bool
	says  string
}

var clusterRules = []rule[Cluster]{
	{
		keys:  []string{"globalEvalWaitTimeoutMs", "globalEvalRoundTimeoutMs"},
		holds: func(c *Cluster) bool { return c.GlobalEvalWait > c.GlobalEvalRound },
		says:  "globalEvalWaitTimeoutMs must be greater than globalEvalRoundTimeoutMs",
	}, {
		keys:  []string{"globalEvalRoundTimeoutMs", "globalEvalCandidateTimeoutMs"},
		holds: func(c *Cluster) bool { return c.GlobalEvalRound > c.GlobalEvalCandidate },
		says:  "globalEvalRoundTimeoutMs must be greater than globalEvalCandidateTimeoutMs",
	}, {
		keys:  []string{"scalerProvisionBackoffMaxMs", "scalerProvisionBackoffBaseMs"},
		holds: func(c *Cluster) bool { return c.ProvisionBackoffMax >= c.ProvisionBackoffBase },
		says:  "scalerProvisionBackoffMaxMs must be at least scalerProvisionBackoffBaseMs",
	},
}
