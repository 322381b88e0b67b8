package workflow

import (
	"strings"
	"testing"
)

func TestCompileJobs(t *testing.T) {
	jobs, problems := CompileJobs("added.yaml", []byte(`
jobs:
  a:
    runs-on: linux
    needs: [of-the-run]
    concurrency: deploy-${{ inputs.target }}
    strategy: {matrix: {n: [1, 2]}, max-parallel: 1, fail-fast: true}
    steps: [{run: make}]
  b: {runs-on: linux, needs: a, if: always(), steps: [{run: make}]}
`))
	if len(problems) > 0 || len(jobs) != 2 || jobs[0].Name != "a" || jobs[0].Needs[0].Job != "of-the-run" || !jobs[0].FailFast || jobs[0].MaxParallel != 1 ||
		jobs[0].Concurrency.Group != "deploy-${{ inputs.target }}" || len(jobs[1].Needs[0].RunOn) < 5 {
		t.Fatalf("%+v %v", jobs, problems)
	}
	for text, want := range map[string]string{
		"":                            "file is empty",
		"jobs: {}":                    "jobs is empty",
		"{}":                          "there are no jobs to add",
		"[a]":                         "must be a map",
		"on: push\njobs: {}":          "belong to the workflow of their run",
		"jobs: {a: {runs-on: linux}}": `job "a" has no steps`,
		"job: {}":                     `unknown key "job"`,
		"jobs:\n  a: {runs-on: linux, needs: b, steps: [{run: x}]}\n  b: {runs-on: linux, needs: a, steps: [{run: x}]}": "in a circle",
	} {
		jobs, problems := CompileJobs("added.yaml", []byte(text))
		if jobs != nil || !HasErrors(problems) || !strings.Contains(string(report(problems)), want) {
			t.Errorf("%q: %v %s", text, jobs, report(problems))
		}
	}
}

func FuzzCompileJobs(f *testing.F) {
	f.Add([]byte("jobs:\n  a: {runs-on: linux, needs: [b], steps: [{run: x}]}\n"))
	f.Add([]byte("jobs: {a: {runs-on: [x], strategy: {matrix: {n: [1]}, max-parallel: 2}, steps: [{run: '${{ matrix.n }}'}]}}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		jobs, problems := CompileJobs("added.yaml", text)
		if HasErrors(problems) != (jobs == nil) {
			t.Fatalf("%d jobs, %v", len(jobs), problems)
		}
		for i := range jobs {
			if jobs[i].Name == "" || len(jobs[i].Steps) == 0 {
				t.Fatalf("%+v", jobs[i])
			}
			_, _ = Expand(&jobs[i], ExpandContext{})
		}
	})
}
