package container

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/api/types/jsonstream"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/container/engineapi"
)

// wanted is the image of a launch.
type wanted struct {
	ref    string
	policy string
	auth   credentials
	agent  string
	marked bool // it is marked when it is pulled and used

	progress func(string) // nil: nobody wants to know
}

// wantedOf is the job's own image, else the label set's (CT-10). A job's image is pulled when it is missing.
func wantedOf(s backend.Spec, set backend.Set) wanted {
	if s.Image != nil {
		return wanted{
			ref: s.Image.Ref, policy: pullMissing, auth: credentials{Username: s.Image.Username, Password: s.Image.Password}, agent: s.AgentID, progress: s.Progress,
		}
	}
	return wanted{ref: set.Options.String(keyImage), policy: cmp.Or(set.Options.String(keyPull), pullMissing), agent: s.AgentID, progress: s.Progress}
}

// haveImage sees to it that the engine has the image, and returns what it knows of it. ctx bounds the pull.
func (g *engine) haveImage(ctx context.Context, w wanted) (image.InspectResponse, error) {
	if err := checkImage(w.ref); err != nil {
		return image.InspectResponse{}, fmt.Errorf("%w: %w", backend.ErrRefused, err)
	}
	defer g.follow(ctx, w)()
	unlock, err := g.lock(ctx, g.pulls, w.ref) // those who want the same image wait for one pull
	if err != nil {
		return image.InspectResponse{}, err
	}
	defer unlock()
	if w.policy != pullAlways {
		got, err := g.api.InspectImage(ctx, w.ref)
		switch {
		case err == nil:
			if w.marked {
				g.renew(ctx, g.inspected(got))
			}
			return got, fits(got, w.ref)
		case !engineapi.IsStatus(err, http.StatusNotFound):
			return image.InspectResponse{}, hostError(err, backend.ErrInfra)
		case w.policy == pullNever:
			return image.InspectResponse{}, fmt.Errorf("%w: the engine does not have image %s, and imagePullPolicy is %s: pull or build it there, or choose another policy",
				backend.ErrRefused, w.ref, pullNever)
		}
	}
	was := before{}
	if w.marked {
		was = g.lookBefore(ctx, w.ref)
	}
	if err := g.pull(ctx, w); err != nil {
		return image.InspectResponse{}, err
	}
	got, err := g.api.InspectImage(ctx, w.ref)
	if err != nil {
		return image.InspectResponse{}, hostError(err, backend.ErrInfra)
	}
	if w.marked {
		g.markPulled(ctx, w.ref, got, was)
	}
	return got, fits(got, w.ref)
}

// fits refuses an image that this program cannot run in.
func fits(i image.InspectResponse, ref string) error {
	if i.Os == "linux" && (i.Architecture == runtime.GOARCH || i.Architecture == "") {
		return nil
	}
	return fmt.Errorf("%w: image %s is for %s/%s, and the agent is for linux/%s", backend.ErrRefused, ref, i.Os, i.Architecture, runtime.GOARCH)
}

// progressEvery is how often a pull that takes long says in the log how far it is.
const progressEvery = 10 * time.Second

// pull gets an image from its registry.
func (g *engine) pull(ctx context.Context, w wanted) error {
	began := time.Now()
	log := g.log.With("agent_id", w.agent, "image", w.ref)
	log.Info("pull image")
	auth, err := g.authFor(ctx, w)
	if err != nil {
		return fmt.Errorf("%w: credentials for image %s: %w", backend.ErrRefused, w.ref, err)
	}
	name, tag, err := nameAndTag(w.ref)
	if err != nil {
		return fmt.Errorf("%w: %w", backend.ErrRefused, err)
	}
	p, end := g.begin(w.ref)
	defer end()
	told := began
	err = g.api.Pull(ctx, name, tag, auth, func(m jsonstream.Message) {
		far := g.notePull(p, m)
		if time.Since(told) >= progressEvery {
			told = time.Now()
			log.Info("pulling image", "far", far, "for", time.Since(began).Round(time.Second).String())
		}
	})
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return pullError(err, w.ref)
	}
	log.Info("image is there", "ms", time.Since(began).Milliseconds())
	return nil
}

// nameAndTag divides an image's name as a pull wants it; without a tag it is latest.
func nameAndTag(ref string) (name, tag string, err error) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return "", "", err
	}
	switch r := reference.TagNameOnly(named).(type) {
	case reference.Digested:
		tag = r.Digest().String()
	case reference.Tagged:
		tag = r.Tag()
	}
	return named.Name(), tag, nil
}

// otherUser reports whether an image's processes are not root's, so that the agent can make no folder of its own.
func otherUser(i image.InspectResponse) bool {
	if i.Config == nil {
		return false
	}
	user, _, _ := strings.Cut(i.Config.User, ":")
	return user != "" && user != "0" && user != "root"
}
