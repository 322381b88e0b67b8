#!/bin/sh
# gofumpt and golangci-lint with the versions of tools/go.mod. Tools are built once into .cache/tools and kept between runs.
set -eu
cd "$(dirname "$0")/.."
tools=${KICI_TOOLS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/kici/tools}
mkdir -p "$tools"
sum=$(cksum < tools/go.sum | tr -d ' ')
for pkg in mvdan.cc/gofumpt github.com/golangci/golangci-lint/v2/cmd/golangci-lint; do
  name=${pkg##*/}
  [ -x "$tools/$name-$sum" ] || (cd tools && CGO_ENABLED=0 go build -o "$tools/$name-$sum" "$pkg")
done
bad=$(git ls-files '*.go' | grep -v -e '^internal/store/db/' -e '_templ.go$' | xargs "$tools/gofumpt-$sum" -l)
[ -z "$bad" ] || { printf 'gofumpt would change:\n%s\n' "$bad"; exit 1; }
"$tools/golangci-lint-$sum" run --allow-parallel-runners ./...
