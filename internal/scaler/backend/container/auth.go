package container

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/distribution/reference"
	"github.com/moby/moby/api/types/registry"
)

// credentials are a user of a registry; the zero value is nobody.
type credentials struct{ Username, Password string }

// authFor is what the engine gets to show the registry: the job's own credentials, else those that this server's user has logged in with.
func (g *engine) authFor(w wanted) (registry.AuthConfig, error) {
	c := w.auth
	if c.Username == "" {
		var err error
		if c, err = lookupCredentials(w.ref, authFiles(func(name string) string { return variable(g.host.Environ, name) })); err != nil {
			return registry.AuthConfig{}, err
		}
	}
	return registry.AuthConfig{Username: c.Username, Password: c.Password}, nil
}

// authFiles are where "docker login" and "podman login" keep what they were told, the first found wins.
func authFiles(getenv func(string) string) []string {
	var out []string
	add := func(base string, parts ...string) {
		if base != "" {
			out = append(out, filepath.Join(append([]string{base}, parts...)...))
		}
	}
	add(getenv("REGISTRY_AUTH_FILE"))
	add(getenv("DOCKER_CONFIG"), "config.json")
	add(getenv("XDG_RUNTIME_DIR"), "containers", "auth.json")
	add(getenv("HOME"), ".config", "containers", "auth.json")
	add(getenv("HOME"), ".docker", "config.json")
	return out
}

// maxAuthFile is more than a login file has.
const maxAuthFile = 1 << 20

// lookupCredentials finds the credentials for an image. Helper programs of the files (credsStore) are not asked.
func lookupCredentials(image string, files []string) (credentials, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return credentials{}, err
	}
	for _, path := range files {
		auths, err := readAuths(path)
		if err != nil {
			return credentials{}, err
		}
		for _, key := range registryKeys(named) {
			for have, auth := range auths {
				if strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(have, "https://"), "http://"), "/") == key {
					return decodeAuth(auth, path)
				}
			}
		}
	}
	return credentials{}, nil
}

// registryKeys are the names of an image's registry in login files, the most specific first.
func registryKeys(named reference.Named) []string {
	domain := reference.Domain(named)
	parts := strings.Split(reference.Path(named), "/")
	var out []string
	for i := len(parts); i > 0; i-- {
		out = append(out, domain+"/"+strings.Join(parts[:i], "/"))
	}
	out = append(out, domain, domain+"/v1", domain+"/v2")
	if domain == "docker.io" {
		out = append(out, "index.docker.io/v1", "index.docker.io")
	}
	return out
}

func readAuths(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var file struct {
		Auths map[string]struct {
			Auth string `json:"auth"`
		} `json:"auths"`
	}
	if err := json.NewDecoder(io.LimitReader(f, maxAuthFile)).Decode(&file); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	out := map[string]string{}
	for name, a := range file.Auths {
		if a.Auth != "" {
			out[name] = a.Auth
		}
	}
	return out, nil
}

func decodeAuth(auth, path string) (credentials, error) {
	data, err := base64.StdEncoding.DecodeString(auth)
	user, password, ok := strings.Cut(string(data), ":")
	if err != nil || !ok {
		return credentials{}, fmt.Errorf("read %s: an entry is not base64 of user:password", path)
	}
	return credentials{user, strings.TrimRight(password, "\x00")}, nil
}
