package git

import "errors"

// Remote is a repository on another machine and what opens it. The zero fields are not used.
type Remote struct {
	URL        string
	Username   string
	Password   string // for http and https
	SSHKey     string // private key, OpenSSH's form or PEM, without a passphrase
	KnownHosts string // lines of known_hosts that pin the host's keys
}

// The errors of a remote that a person must cure; ErrUnreachable and ErrNotFound are the others. Their texts carry git's sentence
// and never a credential.
var (
	ErrDenied  = errors.New("the repository refused the credential")
	ErrHostKey = errors.New("the host key is not the known one")
)
