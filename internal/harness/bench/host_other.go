//go:build !linux

package main

import (
	"context"
	"errors"
	"syscall"
)

// dyingWithUs ends a process with the benchmark, where that can be had.
func dyingWithUs() *syscall.SysProcAttr { return nil }

// asPostgres is for root's PostgreSQL.
func asPostgres(string) (*syscall.SysProcAttr, error) { return nil, nil }

func measureContainer(context.Context, *bench) error {
	return errors.New("containers are measured on Linux")
}

func insideNamespaces(*bench) {}
