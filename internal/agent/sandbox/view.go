package sandbox

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/ci"
)

// entry is one path of the file system inside.
type entry struct {
	path  string
	link  string // it is a symbolic link to this
	dir   bool
	write bool
}

// system are the folders of a machine in which programs, libraries and their settings are, and no people's data.
var system = []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/etc", "/opt", "/nix", "/gnu", "/snap"}

// neverSeen are places with secrets inside of those.
var neverSeen = []string{"/etc/kici", "/etc/ssl/private", "/etc/sudoers", "/etc/sudoers.d"}

// hidden is what c hides.
func (c Config) hidden() []string { return append(slices.Clone(neverSeen), c.Hidden...) }

// view lists what is there inside, parents before what is in them. What exists nowhere is left out, but for what c names itself.
func (c Config) view(lstat func(string) (fs.FileInfo, error), readlink func(string) (string, error)) ([]entry, error) {
	var out []entry
	add := func(path string, write, must bool) error {
		info, err := lstat(path)
		if err != nil {
			if must {
				return err
			}
			return nil
		}
		e := entry{path: path, dir: info.IsDir(), write: write}
		if info.Mode()&fs.ModeSymlink != 0 {
			if e.link, err = readlink(path); err != nil {
				return err
			}
		}
		out = append(out, e)
		return nil
	}
	for _, p := range system {
		_ = add(p, false, false) // never an error
	}
	if c.Network == ci.NetworkHost {
		// Where names are resolved; /etc/resolv.conf is a link to it on many systems.
		if target, err := filepath.EvalSymlinks("/etc/resolv.conf"); err == nil && !within(target, "/etc") {
			_ = add(target, false, false)
		}
	}
	for _, p := range c.Read {
		if err := add(p, false, true); err != nil {
			return nil, err
		}
	}
	for _, p := range c.Write {
		if err := add(p, true, true); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(out, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	return out, nil
}

// within reports whether path is base or below it.
func within(path, base string) bool {
	return path == base || base == "/" || strings.HasPrefix(path, base+"/")
}

// split divides a folder into what can be opened as a whole, so that nothing of hidden is in it. Landlock only adds: to leave one thing
// out, its neighbours are named one by one. What is named itself is not hidden by what is above it.
func split(path string, hidden []string, readDir func(string) ([]os.DirEntry, error)) []string {
	if slices.Contains(hidden, path) {
		return nil
	}
	if len(below(path, hidden)) == 0 {
		return []string{path}
	}
	entries, err := readDir(path)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		out = append(out, split(filepath.Join(path, e.Name()), hidden, readDir)...)
	}
	return out
}

// below are those of hidden that would be seen with a folder.
func below(folder string, hidden []string) (out []string) {
	for _, h := range hidden {
		if within(h, folder) {
			out = append(out, h)
		}
	}
	return out
}
