package engineapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/api/types/registry"
	"github.com/moby/moby/api/types/system"
)

// Version says who the engine is.
func (c *Client) Version(ctx context.Context) (v system.VersionResponse, err error) {
	return v, c.get(ctx, "/version", nil, &v)
}

// Info is what this package's user needs to know of an engine's settings.
type Info struct {
	Root   string `json:"DockerRootDir"` // folder of its images and containers, as the engine sees it
	Images int64  `json:"Images"`        // how many there are
}

// Info asks for the engine's settings.
func (c *Client) Info(ctx context.Context) (i Info, err error) {
	return i, c.get(ctx, "/info", nil, &i)
}

// NewContainer is what a container is made of.
type NewContainer struct {
	Name   string
	Config *container.Config
	Host   *container.HostConfig
}

// Create makes a container and returns its id.
func (c *Client) Create(ctx context.Context, n NewContainer) (string, error) {
	var out container.CreateResponse
	in := struct {
		*container.Config
		HostConfig *container.HostConfig
	}{n.Config, n.Host}
	return out.ID, c.post(ctx, "/containers/create", url.Values{"name": {n.Name}}, in, &out)
}

// Start starts a container.
func (c *Client) Start(ctx context.Context, id string) error {
	return c.post(ctx, "/containers/"+id+"/start", nil, nil, nil)
}

// Stop asks a container to end, and kills it some seconds later.
func (c *Client) Stop(ctx context.Context, id string, seconds int) error {
	return c.post(ctx, "/containers/"+id+"/stop", url.Values{"t": {strconv.Itoa(seconds)}}, nil, nil)
}

// Remove removes a container by force, with its anonymous volumes.
func (c *Client) Remove(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/containers/" + id, query: url.Values{"force": {"1"}, "v": {"1"}}}, nil)
}

// Inspect looks at a container.
func (c *Client) Inspect(ctx context.Context, id string) (in container.InspectResponse, err error) {
	return in, c.get(ctx, "/containers/"+id+"/json", nil, &in)
}

// List lists containers, those that do not run included.
func (c *Client) List(ctx context.Context, f Filters) (out []container.Summary, err error) {
	query := f.values()
	query.Set("all", "1")
	return out, c.get(ctx, "/containers/json", query, &out)
}

// Logs returns the last lines that a container wrote, in frames of stdcopy. Close it.
func (c *Client) Logs(ctx context.Context, id string, lines int) (io.ReadCloser, error) {
	query := url.Values{"stdout": {"1"}, "stderr": {"1"}, "tail": {strconv.Itoa(lines)}}
	resp, err := c.do(ctx, request{method: http.MethodGet, path: "/containers/" + id + "/logs", query: query})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// CopyTo extracts a tar below a folder of a container.
func (c *Client) CopyTo(ctx context.Context, id, folder string, content io.Reader) error {
	r := request{method: http.MethodPut, path: "/containers/" + id + "/archive", query: url.Values{"path": {folder}}, body: content, kind: "application/x-tar"}
	return c.call(ctx, r, nil)
}

// Stream is the input and output of a container.
type Stream struct {
	Conn   net.Conn
	Reader *bufio.Reader // of what the container writes
}

// Attach connects to a container's input and output. Close the connection.
func (c *Client) Attach(ctx context.Context, id string) (*Stream, error) {
	req, err := c.build(ctx, request{
		method: http.MethodPost, path: "/containers/" + id + "/attach", query: url.Values{"stream": {"1"}, "stdin": {"1"}, "stdout": {"1"}, "stderr": {"1"}},
		kind: "text/plain", header: map[string]string{"Connection": "Upgrade", "Upgrade": "tcp"},
	})
	if err != nil {
		return nil, err
	}
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, c.away(&url.Error{Op: "Post", Err: err})
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	reader := bufio.NewReader(conn)
	err = req.Write(conn)
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(reader, req) //nolint:bodyclose // the connection is the body
	}
	if err == nil && resp.StatusCode != http.StatusSwitchingProtocols && resp.StatusCode != http.StatusOK {
		err = answerError(resp)
	}
	if err != nil {
		_ = conn.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	return &Stream{conn, reader}, nil
}

// InspectImage looks at an image.
func (c *Client) InspectImage(ctx context.Context, ref string) (in image.InspectResponse, err error) {
	return in, c.get(ctx, "/images/"+ref+"/json", nil, &in)
}

// Image is one of a listing.
type Image struct {
	ID      string   `json:"Id"`
	Tags    []string `json:"RepoTags"`    // "<none>:<none>" is one, with some engines
	Digests []string `json:"RepoDigests"` // name@sha256:…
	Size    int64    // of all its layers, those of other images included
}

// Images lists images, those without a name included.
func (c *Client) Images(ctx context.Context) (out []Image, err error) {
	return out, c.get(ctx, "/images/json", nil, &out)
}

// Tag gives an image one more name.
func (c *Client) Tag(ctx context.Context, id, name, tag string) error {
	return c.post(ctx, "/images/"+id+"/tag", url.Values{"repo": {name}, "tag": {tag}}, nil, nil)
}

// RemoveImage takes a name from an image, which goes with its last one unless a container needs it.
func (c *Client) RemoveImage(ctx context.Context, ref string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/images/" + ref}, nil)
}

// Pull gets an image, by its full name and a tag or digest, and tells its progress.
func (c *Client) Pull(ctx context.Context, name, tag string, auth registry.AuthConfig, progress func(jsonstream.Message)) error {
	r := request{method: http.MethodPost, path: "/images/create", query: url.Values{"fromImage": {name}, "tag": {tag}}}
	if auth != (registry.AuthConfig{}) {
		r.header = map[string]string{registry.AuthHeader: encodeAuth(auth)}
	}
	resp, err := c.do(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for decoder := json.NewDecoder(resp.Body); ; {
		var m jsonstream.Message
		switch err := decoder.Decode(&m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case m.Error != nil:
			return m.Error
		}
		progress(m)
	}
}

// Networks lists networks.
func (c *Client) Networks(ctx context.Context, f Filters) (out []network.Summary, err error) {
	return out, c.get(ctx, "/networks", f.values(), &out)
}

// InspectNetwork looks at a network.
func (c *Client) InspectNetwork(ctx context.Context, id string) (in network.Inspect, err error) {
	return in, c.get(ctx, "/networks/"+id, nil, &in)
}

// CreateNetwork makes a network.
func (c *Client) CreateNetwork(ctx context.Context, n network.CreateRequest) error {
	return c.post(ctx, "/networks/create", nil, n, nil)
}

// RemoveNetwork removes a network that no container uses.
func (c *Client) RemoveNetwork(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/networks/" + id}, nil)
}

// Volume is a volume that has a name.
type Volume struct {
	Name   string            `json:"Name"`
	Labels map[string]string `json:"Labels"`
}

// CreateVolume makes a volume; one that is there already stays as it is.
func (c *Client) CreateVolume(ctx context.Context, v Volume) error {
	return c.post(ctx, "/volumes/create", nil, v, nil)
}

// Volumes lists volumes.
func (c *Client) Volumes(ctx context.Context, f Filters) ([]Volume, error) {
	var out struct{ Volumes []Volume }
	err := c.get(ctx, "/volumes", f.values(), &out)
	return out.Volumes, err
}

// RemoveVolume removes a volume that no container uses.
func (c *Client) RemoveVolume(ctx context.Context, name string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/volumes/" + name}, nil)
}

// Events tells what happens until ctx or the connection ends. begun is called when the engine listens.
func (c *Client) Events(ctx context.Context, f Filters, begun func(), each func(events.Message)) error {
	resp, err := c.do(ctx, request{method: http.MethodGet, path: "/events", query: f.values()})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	begun()
	for decoder := json.NewDecoder(resp.Body); ; {
		var m events.Message
		if err := decoder.Decode(&m); err != nil {
			return err
		}
		each(m)
	}
}
