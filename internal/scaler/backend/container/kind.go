package container

import (
	"github.com/kici-go/kici/internal/scaler/backend"
)

// Type is the backend's type in scalers.yaml.
const Type = "container"

// Keys of scalers.yaml.
const (
	keyHost       = "host"
	keySocket     = "socketPath"
	keyRuntime    = "runtime"
	keyExtraHosts = "extraHosts"
	keyIsolation  = "networkIsolation"
	keyImageAge   = "imageMaxAge"
	keyImageSize  = "imageMaxSize"
	keyImage      = "image"
	keyPull       = "imagePullPolicy"
	keyVolumes    = "volumes"
	keyOwnSocket  = "containerSocket"
)

// Pull policies of a label set's image (CT-10).
const (
	pullAlways  = "Always"
	pullMissing = "IfNotPresent"
	pullNever   = "Never"
)

// Kind plugs the backend in.
func Kind() backend.Kind { return kind(realFacts()) }

func kind(f facts) backend.Kind {
	return backend.Kind{
		Type: Type, Isolates: true,
		Keys: []backend.Key{
			{Name: keyHost, Type: backend.KeyString, Doc: "API of an engine elsewhere, such as tcp://10.0.0.7:2376; needs networkIsolation: false and orchestratorUrl", Restart: true},
			{Name: keySocket, Type: backend.KeyString, Doc: "socket of the engine on this machine; found by itself when it is not set", Restart: true},
			{Name: keyRuntime, Type: backend.KeyString, Doc: "docker, podman or auto", Restart: true},
			{Name: keyExtraHosts, Type: backend.KeyStrings, Doc: "name:address pairs for the hosts file of containers", Restart: true},
			{Name: keyIsolation, Type: backend.KeyBool, Doc: "keep agents from private networks, from this machine and from each other; true when it is not set", Restart: true},
			{Name: keyImageAge, Type: backend.KeyString, Doc: "for how long an image that kici pulled may be unused until it is removed, such as 36h; off: for ever; 7d when it is not set"},
			{Name: keyImageSize, Type: backend.KeyString, Doc: "size of all images together that kici pulled, such as 20g, beyond which the longest unused are removed"},
		},
		SetKeys: []backend.Key{
			{Name: keyImage, Type: backend.KeyString, Doc: "image of the containers; it needs nothing of kici's. Without it only jobs that name their own are run"},
			{Name: keyPull, Type: backend.KeyString, Doc: "Always, IfNotPresent or Never; IfNotPresent when it is not set"},
			{Name: keyVolumes, Type: backend.KeyStrings, Doc: "source:target or source:target:ro; the source is an absolute folder or the name of a volume"},
			{Name: keyOwnSocket, Type: backend.KeyBool, Doc: "give jobs the engine's socket, and with it this machine"},
		},
		Images: func(set backend.Options) backend.ImageUse {
			if set.String(keyImage) == "" {
				return backend.OnlyImages
			}
			return backend.AnyImage
		},
		Check: func(e backend.Entry) []backend.Fault { return check(e, f) },
		New: func(e backend.Entry, h backend.Host) (backend.Backend, error) {
			b, err := open(e, h, f)
			if err != nil {
				return nil, err
			}
			return b, nil
		},
	}
}

// isolated reports whether an entry's agents are to be kept apart. It is on unless it is switched off.
func isolated(e backend.Entry) bool {
	on, set := e.Options[keyIsolation].(bool)
	return on || !set
}
