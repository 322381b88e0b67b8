package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/kici-go/kici/client"
)

// DefaultServer is where a server listens unless told otherwise.
const DefaultServer = "http://127.0.0.1:4000"

// login is the file that kici login writes: one token per server, and the server that is meant without --server.
type login struct {
	Current string            `json:"current"`
	Tokens  map[string]string `json:"tokens"`
}

// LoginPath is the file of kici login.
func (c *Console) LoginPath() (string, error) {
	dir := c.Getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home := first(c.Getenv("HOME"), c.Getenv("USERPROFILE"))
		if home == "" {
			return "", errors.New("HOME is not set, so there is no place for the login file; give --token or KICI_TOKEN")
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "kici", "login.json"), nil
}

func (c *Console) readLogin() login {
	l := login{Tokens: map[string]string{}}
	path, err := c.LoginPath()
	if err != nil {
		return l
	}
	b, err := os.ReadFile(path)
	if err == nil && json.Unmarshal(b, &l) != nil {
		c.Notice("%s cannot be read as JSON and is ignored", path)
	}
	if l.Tokens == nil {
		l.Tokens = map[string]string{}
	}
	return l
}

// SaveLogin remembers the token of a server and makes it the current one; an empty token forgets it.
func (c *Console) SaveLogin(server, token string) (string, error) {
	path, err := c.LoginPath()
	if err != nil {
		return "", err
	}
	l := c.readLogin()
	server = strings.TrimRight(server, "/")
	if token == "" {
		delete(l.Tokens, server)
		if l.Current == server {
			l.Current = ""
		}
	} else {
		l.Tokens[server], l.Current = token, server
	}
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return "", err
	}
	return path, writePrivate(path, append(b, '\n'))
}

// writePrivate replaces a file that only its owner may read.
func writePrivate(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".login-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already when all went well
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// ServerURL is the server that is meant: the flag, the environment, the login, the default.
func (c *Console) ServerURL() string {
	s := first(c.Server, c.Getenv("KICI_URL"), c.Getenv("KICI_ADMIN_URL"), c.readLogin().Current, DefaultServer)
	if !strings.Contains(s, "://") {
		s = "http://" + s
	}
	return strings.TrimRight(s, "/")
}

// credential is a token and where it came from, for the message when it is refused.
type credential struct{ token, from string }

// findToken looks for the token of server: the flag, the environment, the login, and for a server on this machine the file that
// its first start has written. A token from a file is sent to no other server than the one it belongs to.
func (c *Console) findToken(server string) credential {
	if c.Token != "" {
		return credential{c.Token, "--token"}
	}
	for _, name := range []string{"KICI_TOKEN", "KICI_ADMIN_TOKEN"} {
		if t := c.Getenv(name); t != "" {
			return credential{strings.TrimSpace(t), name}
		}
	}
	if t := c.readLogin().Tokens[server]; t != "" {
		return credential{t, "kici login"}
	}
	if !loopback(server) {
		return credential{}
	}
	for _, dir := range c.dataDirs() {
		path := filepath.Join(dir, "admin.token")
		b, err := os.ReadFile(path)
		if err == nil && strings.TrimSpace(string(b)) != "" {
			return credential{strings.TrimSpace(string(b)), path}
		}
		if errors.Is(err, fs.ErrPermission) {
			c.Notice("%s exists but may not be read by this user", path)
		}
	}
	return credential{}
}

func loopback(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// dataDirs are the places where a server on this machine keeps its data (app.DefaultDataDir): the user's own, then the one of root.
func (c *Console) dataDirs() []string {
	if d := c.Getenv("KICI_DATA_DIR"); d != "" {
		return []string{d}
	}
	var dirs []string
	if d := c.Getenv("XDG_DATA_HOME"); filepath.IsAbs(d) {
		dirs = append(dirs, filepath.Join(d, "kici"))
	} else if home := first(c.Getenv("HOME"), c.Getenv("USERPROFILE")); home != "" {
		dirs = append(dirs, filepath.Join(home, ".local", "share", "kici"))
	}
	return append(dirs, "/var/lib/kici")
}

// Client returns a client for reading.
func (c *Console) Client() (*client.Client, error) {
	if c.Offline || c.DatabaseURL != "" {
		return c.withoutServer()
	}
	server := c.ServerURL()
	cred := c.findToken(server)
	if cred.token == "" {
		text := fmt.Sprintf("no token for %s: %s is required; log in with \"kici login %s\", or set KICI_TOKEN", server, c.tokenNames(), server)
		if loopback(server) {
			text += "; on the server's machine name its data directory with KICI_DATA_DIR"
		}
		return nil, errors.New(text)
	}
	return c.Dial(server, cred.token)
}

// withoutServer returns a client of the database itself (CLI-5).
func (c *Console) withoutServer() (*client.Client, error) {
	if c.OpenOffline == nil {
		return nil, Usage("this program has no --offline")
	}
	if c.offline.close == nil {
		url := first(c.DatabaseURL, c.Getenv("KICI_DATABASE_URL"))
		var err error
		if c.offline.url, c.offline.token, c.offline.close, err = c.OpenOffline(url); err != nil {
			return nil, fmt.Errorf("open the database: %w", err)
		}
	}
	return c.Dial(c.offline.url, c.offline.token)
}

// CloseOffline gives a database free that withoutServer has opened.
func (c *Console) CloseOffline() error {
	if c.offline.close == nil {
		return nil
	}
	end := c.offline.close
	c.offline.close = nil
	return end()
}

func (c *Console) tokenNames() string {
	if c.Admin {
		return "--token or KICI_ADMIN_TOKEN"
	}
	return "--token or KICI_TOKEN"
}

// Dial returns a client of a server with a token.
func (c *Console) Dial(server, token string) (*client.Client, error) {
	cl, err := client.New(client.Config{URL: server, Token: token, Org: first(c.Org, c.Getenv("KICI_ORG")), UserAgent: "kici/" + first(c.Version, "dev")})
	if err != nil {
		return nil, &ExitError{ExitUsage, err}
	}
	return cl, nil
}

// Writer returns a client for commands that change something: the server must speak a protocol that we know (CLI-9).
func (c *Console) Writer(ctx context.Context) (*client.Client, error) {
	cl, err := c.Client()
	if err != nil {
		return nil, err
	}
	if _, err := cl.CheckProtocol(ctx); err != nil {
		return nil, err
	}
	return cl, nil
}

// Explain is the message of an error, with what to do about it.
func (c *Console) Explain(err error) string {
	var ce *client.ConnectError
	var se *client.StatusError
	switch {
	case errors.As(err, &ce):
		return c.explainConnect(ce)
	case errors.As(err, &se) && se.Status == http.StatusUnauthorized:
		from := c.findToken(c.ServerURL()).from
		return fmt.Sprintf("%s refuses the token from %s: %s\nLog in with \"kici login %s\", or give %s.",
			c.ServerURL(), first(from, "this command"), se.Error(), c.ServerURL(), c.tokenNames())
	case errors.As(err, &se) && se.Status >= 500 && se.RequestID != "":
		return fmt.Sprintf("%s (request %s)", se.Error(), se.RequestID)
	}
	return err.Error()
}

func (c *Console) explainConnect(ce *client.ConnectError) string {
	variable := "KICI_URL"
	if c.Admin {
		variable = "KICI_ADMIN_URL"
	}
	cause := ce.Err.Error()
	if strings.Contains(cause, "refused") {
		cause = "nothing listens there"
	}
	msg := fmt.Sprintf("cannot reach the server at %s: %s\n", ce.URL, cause)
	if loopback(ce.URL) {
		return msg + fmt.Sprintf("Start one with \"kici server\" (its port is 4000 unless set), or name another with --server or %s.", variable)
	}
	return msg + fmt.Sprintf("Check the address; it comes from --server, %s or \"kici login\".", variable)
}
