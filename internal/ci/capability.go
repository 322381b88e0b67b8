package ci

import (
	"slices"
	"strings"
)

// The networks of a sandbox (AG-1, KICI_SANDBOX_NETWORK).
const (
	NetworkIsolated = "isolated" // a loopback and nothing else
	NetworkHost     = "host"     // the machine's
)

// Capabilities are those of Linux, as capabilities(7) names them, by their numbers.
var Capabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP",
	"CAP_LINUX_IMMUTABLE", "CAP_NET_BIND_SERVICE", "CAP_NET_BROADCAST", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_IPC_LOCK", "CAP_IPC_OWNER",
	"CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE", "CAP_SYS_PACCT", "CAP_SYS_ADMIN", "CAP_SYS_BOOT", "CAP_SYS_NICE",
	"CAP_SYS_RESOURCE", "CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG", "CAP_MKNOD", "CAP_LEASE", "CAP_AUDIT_WRITE", "CAP_AUDIT_CONTROL", "CAP_SETFCAP",
	"CAP_MAC_OVERRIDE", "CAP_MAC_ADMIN", "CAP_SYSLOG", "CAP_WAKE_ALARM", "CAP_BLOCK_SUSPEND", "CAP_AUDIT_READ", "CAP_PERFMON", "CAP_BPF",
	"CAP_CHECKPOINT_RESTORE",
}

// CapabilityName is a capability's whole name, whatever the case and with or without "CAP_"; "" when there is none.
func CapabilityName(name string) string {
	name = strings.ToUpper(strings.TrimSpace(name))
	if !strings.HasPrefix(name, "CAP_") {
		name = "CAP_" + name
	}
	if slices.Contains(Capabilities, name) {
		return name
	}
	return ""
}
