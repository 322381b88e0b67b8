package enginetest

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// registryAddr is where both engines take a registry without TLS. The network namespace is the test binary's own, so the port is free.
const registryAddr = "127.0.0.1:5000"

// Registry is a registry with one image, which misbehaves on demand.
type Registry struct {
	User, Password string // '' lets everybody in

	mu    sync.Mutex
	blobs map[string][]byte // by digest
	pulls int               // requests for the manifest
	fault func(w http.ResponseWriter, r *http.Request) (done bool)
}

// registryRepo is its image; every tag is there but "none".
const registryRepo = "shop/busybox"

// Ref names the image with a tag.
func (*Registry) Ref(tag string) string { return registryAddr + "/" + registryRepo + ":" + tag }

const (
	manifestType = "application/vnd.docker.distribution.manifest.v2+json"
	configType   = "application/vnd.docker.container.image.v1+json"
	layerType    = "application/vnd.docker.image.rootfs.diff.tar.gzip"
)

// NewRegistry starts a registry of the Busybox image until the test ends.
func NewRegistry(t *testing.T) *Registry {
	t.Helper()
	return NewBigRegistry(t, 0)
}

// NewBigRegistry is one whose image has a file of this size more, which nothing makes smaller.
func NewBigRegistry(t *testing.T, more int64) *Registry {
	t.Helper()
	rootfs, err := Rootfs()
	if err != nil {
		t.Fatal(err)
	}
	if more > 0 {
		if rootfs, err = withFile(rootfs, more); err != nil {
			t.Fatal(err)
		}
	}
	r := &Registry{blobs: map[string][]byte{}}
	r.build(rootfs)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", registryAddr)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: r}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return r
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// build makes the image's blobs; the manifest is the one without a digest.
func (r *Registry) build(rootfs []byte) {
	var layer bytes.Buffer
	z, _ := gzip.NewWriterLevel(&layer, gzip.BestSpeed)
	_, _ = z.Write(rootfs)
	_ = z.Close()
	config, _ := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Env": []string{"PATH=/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(rootfs)}},
	})
	part := func(kind string, data []byte) map[string]any {
		r.blobs[digest(data)] = data
		return map[string]any{"mediaType": kind, "size": len(data), "digest": digest(data)}
	}
	manifest, _ := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": part(configType, config), "layers": []any{part(layerType, layer.Bytes())},
	})
	r.blobs["manifest"] = manifest
}

// Pulls is how often the image's manifest was asked for: at least once a pull, for its digest or for itself.
func (r *Registry) Pulls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pulls
}

// Digest is the image's.
func (r *Registry) Digest() string { return digest(r.blobs["manifest"]) }

// Fault makes requests for blobs go wrong; nil makes them go right again.
func (r *Registry) Fault(do func(w http.ResponseWriter, req *http.Request) (done bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = do
}

// ServeHTTP is the pulling half of the registry's API, version 2.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	if user, password, _ := req.BasicAuth(); r.User != "" && (user != r.User || password != r.Password) {
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		complain(w, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
		return
	}
	path := strings.TrimPrefix(req.URL.Path, "/v2/")
	name, reference, isManifest := strings.Cut(path, "/manifests/")
	_, blob, isBlob := strings.Cut(path, "/blobs/")
	switch {
	case path == "":
		w.WriteHeader(http.StatusOK)
	case isManifest && name == registryRepo && reference != "none":
		r.manifest(w)
	case isManifest:
		complain(w, http.StatusNotFound, "MANIFEST_UNKNOWN", "manifest unknown")
	case isBlob:
		r.blob(w, req, blob)
	default:
		complain(w, http.StatusNotFound, "NAME_UNKNOWN", "repository name not known to registry")
	}
}

func (r *Registry) manifest(w http.ResponseWriter) {
	data := r.blobs["manifest"]
	r.mu.Lock()
	r.pulls++
	r.mu.Unlock()
	w.Header().Set("Content-Type", manifestType)
	w.Header().Set("Docker-Content-Digest", digest(data))
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = w.Write(data)
}

func (r *Registry) blob(w http.ResponseWriter, req *http.Request, name string) {
	r.mu.Lock()
	fault := r.fault
	r.mu.Unlock()
	if fault != nil && fault(w, req) {
		return
	}
	data, ok := r.blobs[name]
	if !ok {
		complain(w, http.StatusNotFound, "BLOB_UNKNOWN", "blob unknown")
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = w.Write(data)
}

func complain(w http.ResponseWriter, status int, code, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"errors":[{"code":%q,"message":%q}]}`, code, text)
}
