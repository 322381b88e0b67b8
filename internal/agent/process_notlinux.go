//go:build !linux

package agent

func hide() error { return nil }

func system() (release, version string, memoryMb int64) { return "", "", 0 }

func memory() (used, available int64) { return 0, 0 }
