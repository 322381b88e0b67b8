package container

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/distribution/reference"

	"github.com/kici-go/kici/internal/scaler/backend"
)

// check finds what is wrong with an entry on this host.
func check(e backend.Entry, f facts) []backend.Fault {
	c := checker{facts: f}
	c.engine(e)
	for _, h := range e.Options.Strings(keyExtraHosts) {
		if err := checkExtraHost(h); err != nil {
			c.fault(keyExtraHosts, "such as registry.local:10.0.0.5", "%v", err)
		}
	}
	if _, err := imageAge(e.Options.String(keyImageAge)); err != nil {
		c.fault(keyImageAge, "", "%v", err)
	}
	if _, err := imageSize(e.Options.String(keyImageSize)); err != nil {
		c.fault(keyImageSize, "such as 20g", "%v", err)
	}
	for i, s := range e.Sets {
		c.set(i, s, e)
	}
	return c.out
}

type checker struct {
	facts
	out []backend.Fault
}

func (c *checker) fault(key, cure, format string, args ...any) {
	c.out = append(c.out, backend.Fault{Key: key, Message: fmt.Sprintf(format, args...), Cure: cure})
}

func (c *checker) engine(e backend.Entry) {
	o := e.Options
	kind := o.String(keyRuntime)
	if kind != "" && !slices.Contains([]string{"docker", "podman", "auto"}, kind) {
		c.fault(keyRuntime, "docker, podman or auto", "there is no runtime %q", kind)
		return
	}
	if c.goos != "linux" {
		c.fault("type", "run this scaler on a Linux server", "the agent in a container is this very program, and this one is not for Linux")
		return
	}
	host, socket := o.String(keyHost), o.String(keySocket)
	if host != "" && socket != "" {
		c.fault(keyHost, "remove one of them", "host and socketPath name two engines")
		return
	}
	if host != "" && isolated(e) { // CT-4
		c.fault(keyHost, "set networkIsolation to false if agents may reach whatever that machine reaches", "networkIsolation cannot protect containers of an engine elsewhere")
	}
	if _, err := choose(o, c.facts); err != nil {
		key := keyRuntime
		switch {
		case host != "":
			key = keyHost
		case socket != "":
			key = keySocket
		}
		c.fault(key, "", "%v", err)
	}
}

func (c *checker) set(i int, s backend.Set, e backend.Entry) {
	key := func(name string) string { return backend.SetKey(i, name) }
	if image, set := s.Options[keyImage].(string); image == "" {
		if set {
			c.fault(key(keyImage), "such as golang:1.26; without the key only jobs that name their own image are run", "must not be empty")
		}
		if s.Options.String(keyPull) != "" {
			c.out = append(c.out, backend.Fault{Key: key(keyPull), Warning: true, Message: "does nothing without image: a job's own is pulled when it is missing"})
		}
	} else if err := checkImage(image); err != nil {
		c.fault(key(keyImage), "", "%v", err)
	}
	if p := s.Options.String(keyPull); p != "" && !slices.Contains([]string{pullAlways, pullMissing, pullNever}, p) {
		c.fault(key(keyPull), pullAlways+", "+pullMissing+" or "+pullNever, "there is no pull policy %q", p)
	}
	for _, v := range s.Options.Strings(keyVolumes) {
		if err := checkVolume(v); err != nil {
			c.fault(key(keyVolumes), "such as /srv/cache:/cache or /srv/data:/data:ro", "%v", err)
		}
	}
	if s.Options.Bool(keyOwnSocket) && e.Options.String(keyHost) != "" {
		c.fault(key(keyOwnSocket), "remove it", "an engine elsewhere has no socket on this machine")
	}
	for name := range s.Env {
		if ownNames[name] {
			c.fault(key("env"), "remove it", "%s is set by kici and cannot be changed", name)
		}
	}
	if !s.Network.IsZero() && !isolated(e) {
		c.out = append(c.out, backend.Fault{Key: key("networkPolicy"), Warning: true, Message: "is not enforced while networkIsolation is false"})
	}
}

// checkImage reads an image's name as engines do.
func checkImage(name string) error {
	if _, err := reference.ParseNormalizedNamed(name); err != nil {
		return fmt.Errorf("%.200q is no name of an image: %w", name, err)
	}
	return nil
}

func checkExtraHost(entry string) error {
	name, address, ok := strings.Cut(entry, ":")
	if _, err := netip.ParseAddr(strings.Trim(address, "[]")); !ok || name == "" || err != nil && address != "host-gateway" {
		return fmt.Errorf("%.100q must be name:address", entry)
	}
	return nil
}

var namedVolume = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}$`) })

var volumeOptions = []string{"ro", "rw", "z", "Z", "private", "rprivate", "slave", "rslave", "shared", "rshared", "nocopy"}

// checkVolume reads source:target[:option,…] (CT-12).
func checkVolume(v string) error {
	parts := strings.Split(v, ":")
	fail := func(why string) error { return fmt.Errorf("%.200q: %s", v, why) }
	if len(parts) < 2 || len(parts) > 3 {
		return fail("must be source:target or source:target:options")
	}
	source, target := parts[0], parts[1]
	if !path.IsAbs(source) && !namedVolume().MatchString(source) {
		return fail("the source must be an absolute path or the name of a volume")
	}
	if clean := path.Clean(target); !path.IsAbs(target) || clean == "/" {
		return fail("the target must be an absolute path below /")
	} else if clean == ownFolder || strings.HasPrefix(clean, ownFolder+"/") {
		return fail(ownFolder + " is kici's own folder")
	}
	if len(parts) == 3 {
		for o := range strings.SplitSeq(parts[2], ",") {
			if !slices.Contains(volumeOptions, o) {
				return fail("there is no option " + o)
			}
		}
	}
	return nil
}

// errNotHere says that a server cannot have this backend.
var errNotHere = errors.New("the container backend needs a server on Linux")
