package git

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
)

// ErrName is wrapped by every refusal of a hostile ref, commit id or address.
var ErrName = errors.New("not a usable git name")

// CheckSHA accepts a full commit id: 40 (SHA-1) or 64 (SHA-256) lower-case hex digits.
func CheckSHA(sha string) error {
	if len(sha) != 40 && len(sha) != 64 {
		return fmt.Errorf("%w: a commit id has 40 or 64 hex digits, got %d characters", ErrName, len(sha))
	}
	if strings.Trim(sha, "0123456789abcdef") != "" {
		return fmt.Errorf("%w: a commit id is lower-case hex, got %q", ErrName, sha)
	}
	return nil
}

// CheckRef accepts what git check-ref-format would, as a branch, a tag or a full ref, and nothing that could be read as
// an option, a revision range, a path or a refspec. Shell characters such as $(x) are legal in refs and harmless here:
// no shell sees them.
func CheckRef(ref string) error {
	if why := badRef(ref); why != "" {
		return fmt.Errorf("%w: ref %q %s", ErrName, ref, why)
	}
	return nil
}

func badRef(ref string) string {
	switch {
	case ref == "" || ref == "@":
		return "is empty"
	case len(ref) > 1024:
		return "is longer than 1024 bytes"
	case ref[0] == '-':
		return "begins with -"
	case strings.Contains(ref, ".."):
		return "contains .."
	case strings.Contains(ref, "@{"):
		return "contains @{"
	case strings.HasSuffix(ref, "."):
		return "ends with a dot"
	}
	for _, r := range ref {
		if r <= ' ' || r == 0x7f || strings.ContainsRune(`~^:?*[\`, r) {
			return fmt.Sprintf("contains %q", r)
		}
	}
	for part := range strings.SplitSeq(ref, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return "has an empty part, or one that begins with a dot or ends with .lock"
		}
	}
	return ""
}

// CheckURL accepts an absolute path, file, http, https, ssh and git addresses, and user@host:path.
func CheckURL(raw string) error {
	if raw == "" || raw[0] == '-' || len(raw) > 4096 {
		return fmt.Errorf("%w: repository address", ErrName)
	}
	for _, r := range raw {
		if r < ' ' || r == 0x7f {
			return fmt.Errorf("%w: repository address contains %q", ErrName, r)
		}
	}
	if filepath.IsAbs(raw) {
		return nil
	}
	if scheme, rest, ok := strings.Cut(raw, "://"); ok {
		return checkScheme(scheme, rest)
	}
	// user@host:path, ssh's short form. "::" would name a remote helper.
	host, path, ok := strings.Cut(raw, ":")
	if !ok || host == "" || path == "" || path[0] == ':' || path[0] == '-' || strings.ContainsAny(host, "/ ") ||
		strings.Contains(host, "@-") {
		return fmt.Errorf("%w: %q is neither an absolute path nor an address", ErrName, Redact(raw))
	}
	return nil
}

func checkScheme(scheme, rest string) error {
	switch scheme {
	case "file", "http", "https", "ssh", "git":
	default:
		return fmt.Errorf("%w: protocol %q is not file, http, https, ssh or git", ErrName, scheme)
	}
	_, host, _ := strings.Cut(rest, "@")
	if host == "" {
		host = rest
	}
	if rest == "" || rest[0] == '-' || host[0] == '-' {
		return fmt.Errorf("%w: repository address has no host", ErrName)
	}
	return nil
}

// Redact returns the address without the credential in it. The user name of ssh stays: it is part of the address.
func Redact(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.User == nil {
		return raw
	}
	if u.Scheme == "ssh" {
		u.User = url.User(u.User.Username())
	} else {
		u.User = nil
	}
	return u.String()
}

// LocalPath returns the directory that an address names on this machine, or "".
func LocalPath(raw string) string { return localPath(raw) }

// localPath returns the directory that the address names on this machine, or "".
func localPath(raw string) string {
	if filepath.IsAbs(raw) {
		return raw
	}
	if p, ok := strings.CutPrefix(raw, "file://"); ok {
		return p
	}
	return ""
}
