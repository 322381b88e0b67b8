package job

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
)

// Bounds of one hashFiles().
const (
	maxHashFiles = 100_000
	maxHashBytes = 4 << 30
	maxHashTime  = 2 * time.Minute
)

// hashFiles is GitHub's function: the SHA-256 over the SHA-256 of every file in the workspace that matches, in the order
// of their paths; "" when none does. Patterns are relative to the workspace; "!" takes files away; symbolic links are not
// followed.
func (j *Job) hashFiles(patterns []string) (string, error) {
	deadline := j.cfg.Now().Add(maxHashTime)
	files, err := j.matchFiles(patterns)
	if err != nil || len(files) == 0 {
		return "", err
	}
	total := sha256.New()
	left := int64(maxHashBytes)
	for _, f := range files {
		sum, n, err := hashFile(filepath.Join(j.workspace(), filepath.FromSlash(f)), left)
		if err != nil {
			return "", fmt.Errorf("hashFiles: %w", err)
		}
		if left -= n; left <= 0 || j.cfg.Now().After(deadline) || j.soft.Err() != nil {
			return "", errors.New("hashFiles: too much to read")
		}
		total.Write(sum)
	}
	return hex.EncodeToString(total.Sum(nil)), nil
}

func hashFile(path string, limit int64) ([]byte, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, limit))
	return h.Sum(nil), n, err
}

func (j *Job) matchFiles(patterns []string) ([]string, error) {
	include, exclude, err := j.hashPatterns(patterns)
	if err != nil {
		return nil, err
	}
	var out []string
	err = filepath.WalkDir(j.workspace(), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(j.workspace(), path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel == ".git" {
				return fs.SkipDir
			}
			return nil
		}
		if d.Type().IsRegular() && matchesAny(include, rel) && !matchesAny(exclude, rel) {
			out = append(out, rel)
		}
		if len(out) > maxHashFiles {
			return fmt.Errorf("more than %d files match", maxHashFiles)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("hashFiles: %w", err)
	}
	slices.Sort(out)
	return out, nil
}

func (j *Job) hashPatterns(patterns []string) (include, exclude []string, err error) {
	for _, text := range patterns {
		p, not := strings.CutPrefix(filepath.ToSlash(strings.TrimSpace(text)), "!")
		p = strings.TrimPrefix(strings.TrimPrefix(p, filepath.ToSlash(j.workspace())+"/"), "./")
		if p == "" {
			continue
		}
		if !doublestar.ValidatePattern(p) {
			return nil, nil, fmt.Errorf("hashFiles: %q is not a pattern", p)
		}
		if not {
			exclude = append(exclude, p)
		} else {
			include = append(include, p)
		}
	}
	return include, exclude, nil
}

// matchesAny: a pattern that names a directory takes all that is in it.
func matchesAny(patterns []string, rel string) bool {
	for _, p := range patterns {
		if doublestar.MatchUnvalidated(p, rel) || doublestar.MatchUnvalidated(strings.TrimSuffix(p, "/")+"/**", rel) {
			return true
		}
	}
	return false
}
