#!/bin/sh
# Runs every fuzz target for the given time each.
set -eu
cd "$(dirname "$0")/.."
time=${1:-10s}
grep -rl --include='*_test.go' 'func Fuzz' . | xargs -n1 dirname | sort -u | while read -r dir; do
  grep -h 'func Fuzz' "$dir"/*_test.go | sed 's/func \(Fuzz[A-Za-z0-9_]*\).*/\1/' | while read -r target; do
    echo "fuzz $dir $target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 5x "$dir" </dev/null
  done
done
