package hostnet

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// failed is the error of a Sync.
func failed(_ []Agent, err error) error { return err }
