package container

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/container/enginetest"
)

// pulling is a rig whose image is in a registry, under a tag of the test's own, and not on the engine.
func pulling(t *testing.T, e *enginetest.Engine, tag string) (*rig, *enginetest.Registry) {
	t.Helper()
	return pullingFrom(t, e, enginetest.NewRegistry(t), tag)
}

func pullingFrom(t *testing.T, e *enginetest.Engine, reg *enginetest.Registry, tag string) (*rig, *enginetest.Registry) {
	t.Helper()
	r := newRig(t, e)
	r.set = backend.Options{keyImage: reg.Ref(tag)}
	forget := func() {
		_, err := e.API.ImageRemove(context.Background(), reg.Ref(tag), client.ImageRemoveOptions{Force: true, PruneChildren: true})
		if err != nil && !strings.Contains(strings.ToLower(err.Error()), "no such image") && !strings.Contains(err.Error(), "not known") {
			t.Log(err)
		}
		r.unmark()
	}
	forget()
	t.Cleanup(forget)
	return r, reg
}

func (r *rig) refused(b *Backend, s backend.Spec, want error, says string) {
	r.t.Helper()
	_, err := b.Create(r.ctx(), s)
	if !errors.Is(err, want) || !strings.Contains(err.Error(), says) {
		r.t.Errorf("got %v, want %v with %q", err, want, says)
	}
}

func TestPullPolicies(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		for _, c := range []struct {
			policy string
			more   int // the least requests for the manifest by two launches more, at once
		}{{"", 0}, {pullMissing, 0}, {pullAlways, 2}} {
			t.Run("policy "+c.policy, func(t *testing.T) {
				r, reg := pulling(t, e, "policy")
				if c.policy != "" {
					r.set[keyPull] = c.policy
				}
				b := r.backend("one")
				r.create(b, r.spec(agent1))
				first := reg.Pulls()
				var group sync.WaitGroup
				for i := range 2 {
					group.Go(func() {
						if _, err := b.Create(r.ctx(), r.spec(fmt.Sprintf("scaler-container-1000000%d", i))); err != nil {
							t.Error(err)
						}
					})
				}
				group.Wait()
				if more := reg.Pulls() - first; first == 0 || more < c.more || c.more == 0 && more > 0 {
					t.Errorf("%d requests, and then %d, want %d", first, more, c.more)
				}
			})
		}
		t.Run(pullNever, func(t *testing.T) {
			r, reg := pulling(t, e, "policy")
			r.set[keyPull] = pullNever
			r.refused(r.backend("one"), r.spec(agent1), backend.ErrRefused, "imagePullPolicy is Never")
			if reg.Pulls() > 0 {
				t.Error("it was pulled")
			}
		})
	})
}

// What a registry says decides whether it makes sense to try again (XS-29, XS-30).
func TestXS30PullErrors(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		t.Run("no such tag", func(t *testing.T) {
			r, _ := pulling(t, e, "none")
			r.refused(r.backend("one"), r.spec(agent1), backend.ErrRefused, "pull image")
		})
		t.Run("no registry", func(t *testing.T) {
			r := newRig(t, e)
			r.set = backend.Options{keyImage: "127.0.0.1:5001/x/y:1"}
			r.refused(r.backend("one"), r.spec(agent1), backend.ErrInfra, "pull image")
		})
		t.Run("a broken layer and then a whole one", func(t *testing.T) {
			r, reg := pulling(t, e, "broken")
			reg.Fault(func(w http.ResponseWriter, _ *http.Request) bool {
				http.Error(w, "out of order", http.StatusInternalServerError)
				return true
			})
			b := r.backend("one")
			r.refused(b, r.spec(agent1), backend.ErrInfra, "pull image")
			reg.Fault(nil)
			r.create(b, r.spec(agent1))
		})
		t.Run("a layer that never comes", func(t *testing.T) {
			r, reg := pulling(t, e, "hanging")
			asked := make(chan struct{}, 8)
			reg.Fault(func(_ http.ResponseWriter, req *http.Request) bool {
				asked <- struct{}{}
				<-req.Context().Done()
				return true
			})
			b := r.backend("one")
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-asked; cancel() }()
			began := time.Now()
			if _, err := b.Create(ctx, r.spec(agent1)); !errors.Is(err, context.Canceled) { // XS-23
				t.Errorf("got %v", err)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	})
}

// Credentials come with the job, or from the login of the server's user; they are in nothing that can be looked at.
func TestRegistryCredentials(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		const password = "open-sesame"
		private := func(t *testing.T) (*rig, *enginetest.Registry) {
			r, reg := pulling(t, e, "private")
			reg.User, reg.Password = "ali", password
			return r, reg
		}
		t.Run("none", func(t *testing.T) {
			r, _ := private(t)
			r.refused(r.backend("one"), r.spec(agent1), backend.ErrRefused, "pull image")
		})
		t.Run("of the job", func(t *testing.T) {
			r, reg := private(t)
			r.set[keyImage] = enginetest.Busybox
			b := r.backend("one")
			s := r.spec(agent1)
			s.Image = &backend.JobImage{Ref: reg.Ref("private"), Username: "ali", Password: password}
			inst := r.create(b, s)
			in := r.inspect(agent1)
			text := fmt.Sprintf("%+v %+v %s", in.Config, in.HostConfig, inst.Launch)
			if strings.Contains(text, password) {
				t.Errorf("the password can be seen: %s", text)
			}
			if in.Config.Image != reg.Ref("private") || !strings.Contains(text, "KICI_JOB_IMAGE_AGENT=1") {
				t.Errorf("it is not the job's image: %s", text)
			}
		})
		t.Run("of the login", func(t *testing.T) {
			r, _ := private(t)
			home := t.TempDir()
			auth := base64.StdEncoding.EncodeToString([]byte("ali:" + password))
			err := os.MkdirAll(filepath.Join(home, ".docker"), 0o700)
			if err == nil {
				err = os.WriteFile(filepath.Join(home, ".docker", "config.json"), []byte(`{"auths":{"127.0.0.1:5000":{"auth":"`+auth+`"}}}`), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			r.environ = []string{"HOME=" + home}
			r.create(r.backend("one"), r.spec(agent1))
		})
	})
}

// How far a pull is, all who wait for the image are told (CT-10), and nothing more when it is there.
func TestPullProgressIsTold(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r, reg := pullingFrom(t, e, enginetest.NewBigRegistry(t, 8<<20), "slow")
		release := reg.Hold()
		defer release()
		b := r.backend("one")
		heard := [2]struct {
			mu    sync.Mutex
			texts []string
		}{}
		last := func(i int) string {
			heard[i].mu.Lock()
			defer heard[i].mu.Unlock()
			if len(heard[i].texts) == 0 {
				return ""
			}
			return heard[i].texts[len(heard[i].texts)-1]
		}
		var group sync.WaitGroup
		for i := range heard {
			s := r.spec(fmt.Sprintf("scaler-container-2000000%d", i))
			s.Progress = func(text string) {
				heard[i].mu.Lock()
				defer heard[i].mu.Unlock()
				heard[i].texts = append(heard[i].texts, text)
			}
			group.Go(func() {
				if _, err := b.Create(r.ctx(), s); err != nil {
					t.Error(err)
				}
			})
		}
		for i := range heard {
			r.eventually("it is told", func() bool {
				return strings.HasPrefix(last(i), "pulling "+reg.Ref("slow")) && (strings.Contains(last(i), " kB") || strings.Contains(last(i), " MB") || e.Name == "podman")
			})
			t.Logf("agent %d: %s", i, last(i))
		}
		release()
		group.Wait()
		for i := range heard {
			t.Logf("agent %d heard %q", i, heard[i].texts)
		}
		if text := b.pullText(reg.Ref("slow")); text != "" {
			t.Errorf("afterwards: %q", text)
		}
	})
}
