#!/bin/sh
# Prints the path of a real Gitea for the tests, built from its Go module once and kept in the user's cache. With --cached it
# builds nothing and prints nothing when there is none yet. Needs a C compiler (for SQLite) and a few minutes.
set -eu
version=v1.26.0
GO=${GO:-go}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/kici/gitea-$version
if [ ! -x "$cache/gitea" ]; then
  [ "${1:-}" != --cached ] || exit 0
  echo "gitea: building $version, once" >&2
  mkdir -p "$(dirname "$cache")"
  work=$(mktemp -d "$cache.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT TERM
  # Outside of this module, whose go.mod must not change. Gitea's own go.mod has replacements, so it is built as a main module.
  module=$(cd "$work" && "$GO" mod download -json "code.gitea.io/gitea@$version" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",$/\1/p')
  cp -r "$module" "$work/src"
  chmod -R u+w "$work/src"
  mkdir "$work/kept"
  (cd "$work/src" && CGO_ENABLED=1 "$GO" build -tags 'sqlite sqlite_unlock_notify' -ldflags '-s -w' -o ../kept/gitea .)
  # What it reads at run time: without these it does not start.
  cp -r "$work/src/options" "$work/src/templates" "$work/src/public" "$work/kept/"
  mv "$work/kept" "$cache" 2>/dev/null || [ -x "$cache/gitea" ] # somebody else may have been faster
fi
echo "$cache/gitea"
