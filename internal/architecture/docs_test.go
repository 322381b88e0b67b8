package architecture_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	groupOfTests = regexp.MustCompile("((?:`Test[A-Za-z0-9]+`(?: · |, | and )?)+) \\((?:[a-z]+: )?(internal/[a-z/]+)\\)")
	oneTest      = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
)

// TestFailuresNameTestsThatExist: docs/failures.md has every row of the two lists, and every test that it names is where it says.
func TestFailuresNameTestsThatExist(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(filepath.Join("..", ".."), "docs", "failures.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for prefix, n := range map[string]int{"XC": 152, "XS": 108} {
		for i := 1; i <= n; i++ {
			if c := strings.Count(text, fmt.Sprintf("\n| %s-%d | ", prefix, i)); c != 1 {
				t.Errorf("%s-%d has %d rows", prefix, i, c)
			}
		}
	}
	sources := map[string]string{}
	named := map[string]bool{}
	for _, g := range groupOfTests.FindAllStringSubmatch(text, -1) {
		room := g[2]
		if _, read := sources[room]; !read {
			sources[room] = testsOf(t, room)
		}
		for _, name := range oneTest.FindAllStringSubmatch(g[1], -1) {
			named[name[1]] = true
			if !strings.Contains(sources[room], "func "+name[1]+"(") {
				t.Errorf("there is no %s in %s", name[1], room)
			}
		}
	}
	for _, name := range oneTest.FindAllStringSubmatch(text, -1) {
		if !named[name[1]] {
			t.Errorf("%s is named without its room", name[1])
		}
	}
}

// testsOf is the text of a room's test files.
func testsOf(t *testing.T, room string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.Join("..", ".."), filepath.FromSlash(room), "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s: %v", room, err)
	}
	var all strings.Builder
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}
