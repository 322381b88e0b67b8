package fake_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/backendtest"
	"github.com/kici-go/kici/internal/scaler/backend/fake"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(*testing.T) backendtest.Subject {
		host := fake.NewHost()
		return backendtest.Subject{
			Open: func(t *testing.T, scaler string) backend.Backend {
				b, err := host.Kind().New(backend.Entry{Name: scaler}, backend.Host{})
				if err != nil {
					t.Fatal(err)
				}
				return b
			},
			Spec: func(id string) backend.Spec { return backend.Spec{AgentID: id, Token: "kat_x"} },
			Kill: func(_ *testing.T, id string, _ json.RawMessage) { host.Kill(id, "killed") },
			Left: func(id string) []string {
				if slices.Contains(host.Things(), id) {
					return []string{id}
				}
				return nil
			},
		}
	})
}
