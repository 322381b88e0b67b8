package container

import (
	"context"
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
type credentials struct {
	Username, Password string
	Token              string // instead of both: what the registry has given for them
}

// authFor is what the engine gets to show the registry: the job's own credentials, else those that this server's user has logged in with.
func (g *engine) authFor(ctx context.Context, w wanted) (registry.AuthConfig, error) {
	c := w.auth
	if c.Username == "" {
		files := authFiles(func(name string) string { return variable(g.host.Environ, name) })
		ask := func(helper, server string) credentials {
			got, err := askHelper(ctx, g.host.Environ, helper, server)
			if err != nil { // most images need nobody's name; of one that does, the registry's refusal follows
				g.log.Warn("credentials of a registry", "server", server, "err", err)
			}
			return got
		}
		var err error
		if c, err = lookupCredentials(w.ref, files, ask); err != nil {
			return registry.AuthConfig{}, err
		}
	}
	return registry.AuthConfig{Username: c.Username, Password: c.Password, IdentityToken: c.Token}, nil
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

// lookupCredentials finds the credentials for an image: in each file by the helper program that it names for the registry, then in the file
// itself.
func lookupCredentials(image string, files []string, ask func(helper, server string) credentials) (credentials, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return credentials{}, err
	}
	for _, path := range files {
		file, err := readAuths(path)
		if err != nil {
			return credentials{}, err
		}
		if helper, server := file.helperFor(reference.Domain(named)); helper != "" {
			if c := ask(helper, server); c != (credentials{}) {
				return c, nil
			}
		}
		for _, key := range registryKeys(named) {
			for have, entry := range file.Auths {
				if entry.Auth != "" && bareRegistry(have) == key {
					return decodeAuth(entry.Auth, path)
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

// bareRegistry is a registry's name as login files have it, without what tools put around it.
func bareRegistry(name string) string {
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(name, "https://"), "http://"), "/")
}

// authFile is a login file.
type authFile struct {
	Auths map[string]struct {
		Auth string `json:"auth"`
	} `json:"auths"`
	CredsStore  string            `json:"credsStore"`  // helper for every registry
	CredHelpers map[string]string `json:"credHelpers"` // by registry
}

// helperFor names the helper program of a registry, ” for none, and by which name it knows the registry.
func (f authFile) helperFor(domain string) (helper, server string) {
	server = domain
	if domain == "docker.io" {
		server = "https://index.docker.io/v1/"
	}
	for name, helper := range f.CredHelpers {
		if bare := bareRegistry(name); bare == domain || bare == bareRegistry(server) {
			return helper, server
		}
	}
	return f.CredsStore, server
}

func readAuths(path string) (file authFile, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return file, nil
	}
	if err != nil {
		return file, err
	}
	defer f.Close()
	if err := json.NewDecoder(io.LimitReader(f, maxAuthFile)).Decode(&file); err != nil {
		return authFile{}, fmt.Errorf("read %s: %w", path, err)
	}
	return file, nil
}

func decodeAuth(auth, path string) (credentials, error) {
	data, err := base64.StdEncoding.DecodeString(auth)
	user, password, ok := strings.Cut(string(data), ":")
	if err != nil || !ok {
		return credentials{}, fmt.Errorf("read %s: an entry is not base64 of user:password", path)
	}
	return credentials{Username: user, Password: strings.TrimRight(password, "\x00")}, nil
}
