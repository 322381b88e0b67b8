//go:build !unix

package client

import "strings"

// refused reports whether nobody listens at the address.
func refused(err error) bool { return strings.Contains(err.Error(), "refused") }
