package api

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/kici-go/kici/internal/source"
)

// What a source's owner must mend is told to whoever starts something from it, not hidden behind a 500.
func TestMisconfiguredSourceIsSaid(t *testing.T) {
	f := failureOf(fmt.Errorf("%w: the path /srv/x is not absolute", source.ErrMisconfigured))
	if f.status != http.StatusConflict || f.Message != "the source is misconfigured: the path /srv/x is not absolute" {
		t.Errorf("%d %s", f.status, f.Message)
	}
}
