// Package architecture_test holds the house to its plan: which room may import which (docs/architecture.md), where SQL, netlink
// and exec may stand. It reads import clauses only, so that it is fast and cannot be fooled by build tags.
package architecture_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/kici-go/kici/"

// rooms maps a directory (and all below it, unless a longer entry exists) to the kici packages that it may import, by prefix.
// A room may always import its own sub-packages and its parents' contracts where they are listed.
var rooms = map[string][]string{
	"client": {},

	// Layer 0: no kici package at all.
	"internal/ci":       {},
	"internal/wire":     {},
	"internal/service":  {},
	"internal/cgroup":   {},
	"internal/obs":      {},
	"internal/diagnose": {},

	// Pure rooms.
	"internal/workflow":      {"internal/ci", "internal/workflow"},
	"internal/workflow/expr": {"internal/workflow/suggest"},
	"internal/workflow/lock": {"internal/ci"},
	"internal/placement":     {"internal/ci"},
	"internal/plan":          {"internal/ci", "internal/workflow"},

	// Contracts.
	"internal/scaler/netpolicy": {},
	"internal/scaler/backend":   {layer0, "internal/scaler/netpolicy"},
	"internal/source":           {layer0},

	// Adapters.
	"internal/git":                        {layer0},
	"internal/source/local":               {layer0, "internal/source", "internal/git"},
	"internal/source/generic":             {layer0, "internal/source", "internal/git"},
	"internal/source/forge":               {layer0, "internal/source", "internal/git"},
	"internal/source/github":              {layer0, "internal/source", "internal/source/forge"},
	"internal/source/gitea":               {layer0, "internal/source", "internal/source/forge", "internal/git"},
	"internal/source/gitlab":              {layer0, "internal/source", "internal/source/forge", "internal/git"},
	"internal/source/sourcetest":          {layer0, "internal/source"},
	"internal/source/forge/forgetest":     {layer0, "internal/source", "internal/source/forge", "internal/source/sourcetest", "internal/git"},
	"internal/scaler/hostnet":             {layer0, "internal/scaler/netpolicy"},
	"internal/scaler/backend/baremetal":   {layer0, "internal/scaler/backend"},
	"internal/scaler/backend/container":   {layer0, "internal/scaler/backend", "internal/scaler/netpolicy", "internal/scaler/hostnet"},
	"internal/scaler/backend/fake":        {layer0, "internal/scaler/backend"},
	"internal/scaler/backend/backendtest": {layer0, "internal/scaler/backend"},
	"internal/store":                      {layer0, "internal/store"},

	// Services: contracts, the store, layer 0 and pure rooms; each other only through interfaces that they declare.
	"internal/access":       {service},
	"internal/blob":         {service},
	"internal/check":        {service, "internal/source"},
	"internal/cluster":      {service},
	"internal/dispatch":     {service},
	"internal/event":        {service},
	"internal/fleet":        {service},
	"internal/ingress":      {service, "internal/source", "internal/git"},
	"internal/logs":         {service, "internal/blob"},
	"internal/periodic":     {service},
	"internal/registration": {service},
	"internal/run":          {service},
	"internal/scaler":       {service, "internal/scaler/backend", "internal/scaler/netpolicy"},
	"internal/schedule":     {service},
	"internal/secret":       {service},
	"internal/setting":      {service},

	// Surfaces over the services.
	"internal/api": {service, services, "client", "internal/api"},
	"internal/web": {service, services, "client", "internal/api/read", "internal/web"},

	// Programs without a store.
	"internal/agent":       {layer0, "internal/workflow/lock", "internal/workflow/expr", "internal/git", "internal/agent"},
	"internal/agent/local": {layer0, "internal/workflow", "internal/plan", "internal/git", "internal/agent"},
	"internal/cli":         {layer0, "client", "internal/cli", "internal/workflow", "internal/plan", "internal/git", "internal/agent"},

	// The composition root and what tests everything together.
	"internal/app":          {anything},
	"internal/harness":      {anything},
	"internal/architecture": {},
	"cmd":                   {"internal/app", "internal/cli"},
}

const (
	anything = "*"
	layer0   = "layer 0"
	service  = "what a service may import"
	services = "services"
)

var groups = map[string][]string{
	layer0:  {"internal/ci", "internal/cgroup", "internal/wire", "internal/service", "internal/obs", "internal/diagnose"},
	service: {"internal/ci", "internal/wire", "internal/service", "internal/obs", "internal/diagnose", "internal/store", "internal/workflow", "internal/placement", "internal/plan", "internal/scaler/backend", "internal/source="},
	services: {
		"internal/access", "internal/check", "internal/cluster", "internal/dispatch", "internal/event", "internal/fleet", "internal/ingress",
		"internal/logs", "internal/periodic", "internal/registration", "internal/run", "internal/scaler", "internal/schedule", "internal/secret", "internal/setting", "internal/blob",
	},
}

// reserved lists third-party and standard packages that stand in few rooms only.
var reserved = map[string][]string{
	"os/exec":                                  {"internal/scaler/backend", "internal/agent/exec", "internal/agent/sandbox", "internal/git", "internal/app", "internal/harness", "internal/cli/demo"},
	"database/sql":                             {"internal/store", nullTypes},
	"modernc.org/sqlite":                       {"internal/store", "internal/harness/bench"},
	"github.com/jackc/pgx/v5":                  {"internal/store"},
	"github.com/vishvananda/netlink":           {"internal/scaler/hostnet"},
	"github.com/google/nftables":               {"internal/scaler/hostnet"},
	"github.com/moby/moby/client":              {"internal/scaler/backend/container/enginetest", "internal/harness/bench"}, // the program has engineapi
	"github.com/mdlayher/netlink":              {"internal/scaler/hostnet"},
	"github.com/santhosh-tekuri/jsonschema/v6": {"tests only"},
}

// nullTypes: sqlc's rows have sql.NullString and the like, so services that read rows may name those types.
const nullTypes = "services"

func TestImportsGoOneWay(t *testing.T) {
	for file, imports := range goFiles(t) {
		dir := filepath.ToSlash(filepath.Dir(file))
		room, allowed, ok := roomOf(dir)
		if !ok {
			t.Errorf("%s: no room is planned here; add it to docs/architecture.md and to this test", file)
			continue
		}
		for _, imp := range imports {
			if other, isOurs := strings.CutPrefix(imp, module); isOurs && !permits(room, allowed, dir, other) {
				t.Errorf("%s: %s may not import %s", file, room, other)
			}
		}
	}
}

func TestReservedPackages(t *testing.T) {
	for file, imports := range goFiles(t) {
		dir := filepath.ToSlash(filepath.Dir(file))
		for _, imp := range imports {
			for pkg, where := range reserved {
				if imp != pkg && !strings.HasPrefix(imp, pkg+"/") {
					continue
				}
				if !reservedFor(dir, where) {
					t.Errorf("%s: %s stands only in %s", file, pkg, strings.Join(where, ", "))
				}
			}
		}
	}
}

func TestNoVagueRooms(t *testing.T) {
	for file := range goFiles(t) {
		for part := range strings.SplitSeq(filepath.ToSlash(filepath.Dir(file)), "/") {
			switch part {
			case "util", "utils", "common", "types", "models", "helpers", "misc":
				t.Errorf("%s: %q names no idea", file, part)
			}
		}
	}
}

func reservedFor(dir string, where []string) bool {
	for _, w := range where {
		if w == nullTypes {
			for _, s := range append(groups[services], "internal/api", "internal/web", "internal/app", "internal/harness") {
				if under(dir, s) {
					return true
				}
			}
		}
		if under(dir, w) {
			return true
		}
	}
	return false
}

func permits(room string, allowed []string, dir, other string) bool {
	if under(other, dir) {
		return true // its own sub-packages
	}
	for _, a := range allowed {
		if a == anything {
			return true
		}
		members, isGroup := groups[a]
		if !isGroup {
			members = []string{a}
		}
		for _, m := range members {
			if exact, ok := strings.CutSuffix(m, "="); ok && other == exact {
				return true
			}
			if under(other, m) {
				return true
			}
		}
	}
	return room != dir && other == room && strings.HasPrefix(dir, room+"/")
}

func roomOf(dir string) (room string, allowed []string, ok bool) {
	for d := dir; d != "."; d = filepath.ToSlash(filepath.Dir(d)) {
		if allowed, ok := rooms[d]; ok {
			return d, allowed, true
		}
	}
	return "", nil, false
}

func under(dir, parent string) bool { return dir == parent || strings.HasPrefix(dir, parent+"/") }

// goFiles returns the imports of every Go file that is not a test, by path from the module's root.
func goFiles(t *testing.T) map[string][]string {
	t.Helper()
	root := filepath.Join("..", "..")
	files := map[string][]string{}
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); path != "." && (strings.HasPrefix(n, ".") || n == "testdata" || n == "tools" || n == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		files[path] = []string{}
		for _, s := range f.Imports {
			p, err := strconv.Unquote(s.Path.Value)
			if err != nil {
				return err
			}
			files[path] = append(files[path], p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("found only %d files: the walk is wrong", len(files))
	}
	return files
}
