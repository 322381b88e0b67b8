package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// CheckMain tries a sandbox in a folder that is not there yet, as the user whose process this is, and prints its report.
func CheckMain(dir, network string, stdout, stderr io.Writer) int {
	program, err := os.Executable()
	var r Report
	if err == nil {
		r, err = Try(dir, network, program)
	}
	if err == nil {
		err = json.NewEncoder(stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// Try makes a sandbox with nothing in it and says what it enforces. dir is made for that and removed; executable is this program.
func Try(dir, network, executable string) (Report, error) {
	c := Config{Write: []string{filepath.Join(dir, "write")}, Tmp: filepath.Join(dir, "tmp"), Root: filepath.Join(dir, "root"), Network: network}
	for _, d := range []string{c.Write[0], c.Tmp, c.Root} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return Report{}, err
		}
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeout(context.Background(), 2*startWithin)
	defer cancel()
	b, err := Open(ctx, c, Options{Executable: executable})
	if err != nil {
		return Report{}, err
	}
	b.Close()
	return b.Report, nil
}
