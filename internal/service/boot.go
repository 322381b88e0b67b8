package service

import (
	"os"
	"strings"
)

// BootID names this boot of the machine, ” where there is no such name.
func BootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
