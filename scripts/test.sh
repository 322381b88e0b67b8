#!/bin/sh
# Runs go test with its arguments beside a throw-away PostgreSQL (KICI_TEST_POSTGRES) when one can be had. With
# KICI_TEST_RERUN set (CI), a test that failed is run once more, and is named at the end if it passed then (decision 0009).
set -eu
cd "$(dirname "$0")/.."
scripts/setup.sh
GO=${GO:-go}
[ -n "${KICI_TEST_GITEA:-}" ] || KICI_TEST_GITEA=$(scripts/gitea.sh --cached)
export KICI_TEST_GITEA
if [ -z "${KICI_TEST_POSTGRES:-}" ]; then
  bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1 || true)
  if [ -n "$bin" ]; then
    dir=$(mktemp -d /tmp/kici-pg.XXXXXX)
    chmod 755 "$dir"
    as=""
    if [ "$(id -u)" = 0 ]; then
      as="setpriv --reuid postgres --regid postgres --clear-groups"
      chown postgres "$dir"
    fi
    stop() { $as "$bin/pg_ctl" -D "$dir/data" -m immediate stop >/dev/null 2>&1 || true; rm -rf "$dir"; }
    trap stop EXIT
    trap 'exit 130' INT TERM
    $as "$bin/initdb" -D "$dir/data" -U postgres -A trust -E UTF8 --no-sync --locale=C.UTF-8 >/dev/null
    port=$(( 20000 + $$ % 20000 ))
    $as "$bin/pg_ctl" -D "$dir/data" -w -l "$dir/log" -o "-p $port -k $dir -c listen_addresses=127.0.0.1 -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=300" start >/dev/null
    KICI_TEST_POSTGRES="postgres://postgres@127.0.0.1:$port/postgres?sslmode=disable"
    export KICI_TEST_POSTGRES
  else
    echo "test: no PostgreSQL on this machine: its tests are SKIPPED" >&2
  fi
fi
[ -n "${KICI_TEST_RERUN:-}" ] || { "$GO" test "$@"; exit; }
# The last argument is the packages.
for packages; do :; done
sum=${XDG_CACHE_HOME:-$HOME/.cache}/kici/tools/gotestsum-$(cksum < tools/go.sum | tr -d ' ')
[ -x "$sum" ] || (cd tools && mkdir -p "$(dirname "$sum")" && CGO_ENABLED=0 "$GO" build -o "$sum" gotest.tools/gotestsum)
flaky=$(mktemp)
code=0
# shellcheck disable=SC2046
"$sum" --format pkgname --hide-summary=skipped --rerun-fails=1 --rerun-fails-max-failures=5 --rerun-fails-report="$flaky" \
  --packages "$packages" -- $(for a; do [ "$a" = "$packages" ] || printf '%s ' "$a"; done) || code=$?
[ ! -s "$flaky" ] || { echo "tests that failed at first (runs, failures): mend them"; cat "$flaky"; }
rm -f "$flaky"
exit $code
