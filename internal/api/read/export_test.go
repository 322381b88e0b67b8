package read_test

import (
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/run"
)

func cancelOf(id string) run.CancelRequest {
	return run.CancelRequest{OrgID: readtest.Org, RunID: id, By: "test"}
}
