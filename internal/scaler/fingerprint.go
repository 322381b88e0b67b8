package scaler

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Fingerprint tells whether scalers.yaml or a fragment has changed, without reading them: names, sizes and times. What is missing counts
// as well.
func Fingerprint(path, dir string) string {
	h := sha256.New()
	note := func(path string) {
		if info, err := os.Stat(path); err != nil {
			fmt.Fprintf(h, "%s %v\n", path, err)
		} else {
			fmt.Fprintf(h, "%s %d %d\n", path, info.Size(), info.ModTime().UnixNano())
		}
	}
	note(path)
	if dir != "" {
		files, err := os.ReadDir(dir)
		if err != nil {
			fmt.Fprintln(h, err)
		}
		for _, f := range files {
			if slices.Contains(fragmentTypes, filepath.Ext(f.Name())) {
				note(filepath.Join(dir, f.Name()))
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
