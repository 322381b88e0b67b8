package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// CheckMain tries a sandbox with the given network in a folder of this user, and prints its report.
func CheckMain(dir, network string, stdout, stderr io.Writer) int {
	r, err := check(dir, network)
	if err == nil {
		err = json.NewEncoder(stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func check(dir, network string) (Report, error) {
	c := Config{Write: []string{filepath.Join(dir, "write")}, Tmp: filepath.Join(dir, "tmp"), Root: filepath.Join(dir, "root"), Network: network}
	for _, d := range []string{c.Write[0], c.Tmp, c.Root} {
		if err := os.Mkdir(d, 0o700); err != nil && !os.IsExist(err) {
			return Report{}, err
		}
	}
	program, err := os.Executable()
	if err != nil {
		return Report{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*startWithin)
	defer cancel()
	b, err := Open(ctx, c, Options{Executable: program})
	if err != nil {
		return Report{}, err
	}
	b.Close()
	return b.Report, nil
}
