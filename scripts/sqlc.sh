#!/bin/sh
# Regenerates internal/store/db from internal/store/queries and migrations. Serialised, so that it may run twice at once.
set -eu
cd "$(dirname "$0")/../internal/store"
exec 9>/tmp/kici-sqlc.lock
flock 9
if command -v sqlc >/dev/null 2>&1; then sqlc generate; else CGO_ENABLED=0 go tool -modfile=../../tools/go.mod sqlc generate; fi
