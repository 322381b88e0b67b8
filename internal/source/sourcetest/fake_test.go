package sourcetest

import (
	"encoding/json"
	"testing"

	"github.com/kici-go/kici/internal/source"
)

func TestFakePassesTheSuite(t *testing.T) {
	Run(t, func(*testing.T) Origin {
		f := &Fake{}
		f.Configure(source.Config{Name: "fake", Repo: "demo"}, "main")
		first := f.Commit("refs/heads/main", "first", map[string]string{".kici/workflows/ci.yaml": "one", "a.txt": "1", "dir/b.txt": "1"})
		second := f.Commit("refs/heads/main", "second", map[string]string{
			".kici/workflows/ci.yaml": "two", ".kici/kici.lock.json": "{}", "c.txt": "1", "dir/b.txt": "2",
		})
		f.refs["refs/tags/v1"] = second
		bare := f.Commit("refs/heads/empty", "bare", map[string]string{"a.txt": "1"})
		return Origin{
			Source: f, First: first, Second: second, Bare: bare, DefaultBranch: "main", Break: func() { f.Fail(source.ErrUnreachable) },
			Push: func(ref, before, after string) source.Delivery {
				body, _ := json.Marshal(source.Payload{Ref: ref, Before: before, After: after})
				return source.Delivery{Event: "push", Body: body}
			},
		}
	})
}
