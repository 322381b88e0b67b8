// Package cluster knows which orchestrators there are and which of them leads: the data directory that makes a process
// one particular instance, its row with a heartbeat, and the leader lease with its fencing term. Agents, jobs and peers
// belong to other rooms.
package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/kici-go/kici/internal/service"
)

// ErrLocked means that another server uses the data directory.
var ErrLocked = errors.New("data directory is in use")

const (
	lockName     = "server.lock"
	instanceName = "instance_id"
)

// DataDir is the directory of one instance, locked for this process.
type DataDir struct {
	path       string
	instanceID string
	lock       *os.File
}

// OpenDataDir makes the directory (0700) where it is missing, locks it and reads or makes its stable instance id. A
// second server gets ErrLocked with a sentence that names the process that has it.
func OpenDataDir(path string) (*DataDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("open data directory: %w; choose one that can be written (--data-dir)", err)
	}
	lock, err := lockDir(path)
	if err != nil {
		return nil, err
	}
	id, err := instanceID(filepath.Join(path, instanceName))
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("read instance id: %w", err)
	}
	return &DataDir{path: path, instanceID: id, lock: lock}, nil
}

// Path is the directory, absolute.
func (d *DataDir) Path() string { return d.path }

// InstanceID names this instance through restarts.
func (d *DataDir) InstanceID() string { return d.instanceID }

// File is a path below the directory.
func (d *DataDir) File(elem ...string) string {
	return filepath.Join(append([]string{d.path}, elem...)...)
}

// Close gives the directory free. The lock file stays: removing it could unlock somebody else's.
func (d *DataDir) Close() error {
	if d.lock == nil {
		return nil
	}
	err := d.lock.Close()
	d.lock = nil
	return err
}

func lockDir(path string) (*os.File, error) {
	name := filepath.Join(path, lockName)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w; choose one that can be written (--data-dir)", err)
	}
	if err := service.LockFile(f); err != nil {
		holder := holderOf(f)
		_ = f.Close()
		if !errors.Is(err, service.ErrLocked) {
			return nil, fmt.Errorf("lock data directory: %w", err)
		}
		return nil, fmt.Errorf("%w: %s is used by another kici server%s; stop it or choose another directory (--data-dir)",
			ErrLocked, path, holder)
	}
	if err := writeHolder(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	return f, nil
}

func holderOf(f *os.File) string {
	text := make([]byte, 32)
	n, _ := f.ReadAt(text, 0)
	if pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n]))); err == nil {
		return fmt.Sprintf(" (process %d)", pid)
	}
	return ""
}

func writeHolder(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// instanceID reads the id, or makes one that is there whole or not at all.
func instanceID(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err == nil {
		id, err := uuid.Parse(strings.TrimSpace(string(text)))
		if err != nil {
			return "", fmt.Errorf("%s is damaged (%w): put back the id that the cluster knows, or remove the file to become a new instance", path, err)
		}
		return id.String(), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", err
	}
	return id.String(), WriteFile(path, []byte(id.String()+"\n"))
}

// WriteFile puts data into a file of mode 0600 that after any crash is whole, or as it was before.
func WriteFile(path string, data []byte) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*") // made 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // does nothing after the rename
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return service.SyncDir(dir)
}
