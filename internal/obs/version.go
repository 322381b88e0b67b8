package obs

import "runtime/debug"

// Version is this build's version; the Makefile sets it.
var Version = ""

// BuildVersion is Version, or what the build tells of its commit.
func BuildVersion() string {
	if Version != "" {
		return Version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "dev-" + s.Value[:12]
		}
	}
	return "dev"
}
