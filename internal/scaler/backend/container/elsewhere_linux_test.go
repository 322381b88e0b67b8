package container

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/container/enginetest"
)

// authority makes the files of TLS as DOCKER_CERT_PATH has them, and what a server needs.
type authority struct {
	dir  string // ca.pem, cert.pem, key.pem of a client
	tls  *tls.Config
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.key, a.cert = a.issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	a.write(t, "ca.pem", "CERTIFICATE", a.cert.Raw)
	key, cert := a.issue(t, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	a.write(t, "cert.pem", "CERTIFICATE", cert.Raw)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	a.write(t, "key.pem", "EC PRIVATE KEY", der)
	key, cert = a.issue(t, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	a.tls = &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}
	return a
}

func (a *authority) issue(t *testing.T, c *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return key, cert
}

func (a *authority) write(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// serve puts TLS in front of an engine's socket, as dockerd --tlsverify does, and returns its address.
func (a *authority) serve(t *testing.T, socket string) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", a.tls)
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { carry(c, socket) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); open.Wait() })
	return "tcp://" + l.Addr().String()
}

// carry copies both ways, and the end of each: an engine closes a container's input when its client does.
func carry(c net.Conn, socket string) {
	defer c.Close()
	up, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer up.Close()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(up, c); _ = up.(*net.UnixConn).CloseWrite() })
	both.Go(func() {
		_, _ = io.Copy(c, up)
		_ = c.(*tls.Conn).CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
	})
	both.Wait()
}

// TestEngineElsewhereByTLS: an engine that asks for certificates starts agents with their program copied and their token by the attached
// input, and refuses who has none.
func TestEngineElsewhereByTLS(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		a := newAuthority(t)
		r := newRig(t, e)
		r.options = backend.Options{keyHost: a.serve(t, e.Socket), keyIsolation: false}
		if e.Name == "podman" {
			r.options[keyRuntime] = "podman"
		}
		r.environ = []string{"DOCKER_CERT_PATH=" + a.dir}
		b := r.backend("one")
		s := r.spec(agent1)
		s.URL, s.Socket = "wss://ci.example.com/ws", ""
		r.create(b, s)
		r.eventually("the agent has its token", func() bool { return strings.Contains(r.output(agent1), "token of") })

		stranger := newRig(t, e)
		stranger.options = r.options
		other := newAuthority(t)
		stranger.environ = []string{"DOCKER_CERT_PATH=" + other.dir}
		sb, err := open(stranger.entry("one"), stranger.host(), realFacts())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sb.Close() }()
		if err := sb.Prepare(stranger.ctx()); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("with the certificates of somebody else: %v", err)
		}
	})
}
