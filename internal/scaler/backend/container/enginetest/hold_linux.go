package enginetest

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/service"
)

// heldBlob is how large a blob is at least that Hold holds back.
const heldBlob = 64 << 10

// Hold lets the registry give half of every large blob, and the rest when release is called.
func (r *Registry) Hold() (release func()) {
	free := make(chan struct{})
	r.Fault(func(w http.ResponseWriter, req *http.Request) bool {
		_, name, _ := strings.Cut(req.URL.Path, "/blobs/")
		data := r.blobs[name]
		if len(data) < heldBlob || req.Header.Get("Range") != "" {
			return false
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		half := data[:len(data)/2]
		for part := range slices.Chunk(half, len(half)/8+1) { // engines tell of progress now and then only
			_, _ = w.Write(part)
			if f, ok := w.(http.Flusher); ok {
				f.Flush()
			}
			if service.Sleep(req.Context(), 100*time.Millisecond) != nil {
				return true
			}
		}
		select {
		case <-free:
		case <-req.Context().Done():
			return true
		}
		_, _ = w.Write(data[len(half):])
		return true
	})
	return sync.OnceFunc(func() { close(free) })
}
