package app

import (
	"fmt"
	"os"
)

// shortPath names a folder in few bytes while release is not called: the address of a socket has 108, and a data directory may need more.
func shortPath(folder string) (short string, release func(), err error) {
	f, err := os.Open(folder)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d", f.Fd()), func() { _ = f.Close() }, nil
}
