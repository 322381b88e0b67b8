package app

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/cluster"
	"github.com/kici-go/kici/internal/diagnose"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/store"
)

// Offline is the API over the database itself, for commands that work without a server (CLI-5, ADM-14): the same handlers over the
// same rooms, so with the same checks and the same audit rows. It lives as long as one command, on a port of this machine that
// only who knows its random token may use.
type Offline struct {
	URL   string
	Token string

	server *Server
	http   *http.Server
	served chan error
	stop   context.CancelFunc
	audit  chan error
}

// OpenOffline opens the database that the options name. One in a data directory must be there and have no server; one in
// PostgreSQL may have servers, which are told of every change.
func OpenOffline(ctx context.Context, o Options) (*Offline, error) {
	o.PublicURL, o.asIs = "http://offline.invalid", true // links lead nowhere: no server answers
	s := &Server{started: make(chan struct{})}
	temporary := ""
	if o.DatabaseURL != "" && o.DataDir == "" {
		dir, err := os.MkdirTemp("", "kici-offline-")
		if err != nil {
			return nil, err
		}
		o.DataDir, temporary = dir, dir
		s.opened("temporary directory", func() error { return os.RemoveAll(dir) })
	}
	if err := s.setDefaults(o); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if _, err := os.Stat(filepath.Join(s.o.DataDir, store.FileName)); err != nil && o.DatabaseURL == "" {
		return nil, fmt.Errorf("there is no database in %s (%w); name its directory with KICI_DATA_DIR, or a PostgreSQL with --database-url", s.o.DataDir, err)
	}
	if temporary != "" && o.SecretKey == "" {
		return nil, errors.Join(errors.New("set KICI_SECRET_KEY to the cluster's master key, or KICI_DATA_DIR to the directory of a server with it"), s.close())
	}
	for _, step := range []func(context.Context) error{s.openData, s.openStore, func(ctx context.Context) error {
		return errors.Join(s.openDoors(), s.secrets.Verify(ctx))
	}, s.openSettings, s.openRooms} {
		err := step(ctx)
		if errors.Is(err, cluster.ErrLocked) {
			err = fmt.Errorf("a server runs on %s: leave --offline out, and it answers", s.o.DataDir)
		}
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return serveOffline(ctx, s)
}

func serveOffline(ctx context.Context, s *Server) (*Offline, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	o := &Offline{URL: "http://" + l.Addr().String(), Token: ci.RandomHex(32), server: s, served: make(chan error, 1), audit: make(chan error, 1)}
	d := s.apiDeps(read.New(s.store, read.Config{Now: s.o.Now, BaseURL: s.URL, Logs: read.NewStepLogs(s.logs)}))
	d.Auth, d.Node = offlineDoor{s.access, o.Token}, nobody{}
	d.Checks = []diagnose.Check{{Name: "database", Ask: s.checkDatabase}}
	o.http = &http.Server{Handler: obs.RequestIDs(s.env.NewID, api.New(d)), ReadHeaderTimeout: headerTimeout}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	o.stop = stop
	go func() { o.served <- o.http.Serve(l) }()
	go func() { o.audit <- s.access.Run(run) }()
	return o, nil
}

// Close writes what is recorded and gives the database free.
func (o *Offline) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := o.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = o.http.Close()
	}
	if serr := <-o.served; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	o.stop()
	return errors.Join(err, <-o.audit, o.server.close())
}

// offlineDoor lets in who has the token of this one command, as an owner of the operating organisation: who can open the database
// can do everything anyhow. The access log names the user of this machine.
type offlineDoor struct {
	*access.Service
	token string
}

// Authenticate implements the API's authenticator.
func (d offlineDoor) Authenticate(_ context.Context, bearer string) (access.Principal, error) {
	if subtle.ConstantTimeCompare([]byte(bearer), []byte(d.token)) != 1 {
		return access.Principal{}, access.ErrUnauthenticated
	}
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return access.Principal{OrgID: access.DefaultOrg, Label: name + "@" + hostName() + " (without a server)", Role: access.Owner, Kind: access.KindUser}, nil
}

// nobody stands for the scalers of a server that is not there.
type nobody struct{}

// ReloadScalers implements the API's node.
func (nobody) ReloadScalers(_ context.Context, dryRun bool) client.ScalerReload {
	return client.ScalerReload{DryRun: dryRun, Changes: []client.ScalerChange{}, Problems: []client.ScalerProblem{}, Refused: "there is no server here that could reload its scalers"}
}
