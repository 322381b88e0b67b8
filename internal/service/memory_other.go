//go:build !linux

package service

// GiveBack does nothing here.
func GiveBack() {}
