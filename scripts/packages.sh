#!/bin/sh
# packages.sh [ARCH...]: deb and rpm of each architecture (amd64 arm64) into bin/packages, by nfpm.
set -eu
cd "$(dirname "$0")/.."
GO=${GO:-go}
out=bin/packages
version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo dev)}
tools=${KICI_TOOLS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/kici/tools}
nfpm=$tools/nfpm-$(cksum < tools/nfpm/go.sum | tr -d ' ')
[ -x "$nfpm" ] || (mkdir -p "$tools" && cd tools/nfpm && CGO_ENABLED=0 "$GO" build -o "$nfpm" github.com/goreleaser/nfpm/v2/cmd/nfpm)
make build
rm -rf "$out"
mkdir -p "$out/man" "$out/completion"
bin/kici docs man --dir "$out/man"
for shell in bash zsh fish; do bin/kici completion $shell >"$out/completion/$shell"; done
# A version that packages can compare: v1.2.3, or 0.0.0 and the commit.
case $version in v[0-9]*) number=${version#v} ;; *) number=0.0.0~$version ;; esac
for arch in "${@:-amd64}"; do
  mkdir -p "$out/$arch"
  CGO_ENABLED=0 GOOS=linux GOARCH=$arch "$GO" build -trimpath \
    -ldflags "-s -w -X github.com/kici-go/kici/internal/obs.Version=$version" -o "$out/$arch/kici" ./cmd/kici
  for format in deb rpm; do
    VERSION=$number ARCH=$arch "$nfpm" package --config packaging/nfpm.yaml --packager $format --target "$out/" >&2
  done
done
ls "$out"/*.deb "$out"/*.rpm
