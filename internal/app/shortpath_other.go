//go:build !linux

package app

// shortPath has no way to name a folder shorter here.
func shortPath(folder string) (short string, release func(), err error) {
	return folder, func() {}, nil
}
