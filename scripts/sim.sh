#!/bin/sh
# Plays SEEDS seeds of the simulation (docs/simulation.md) from SEED on, or SEED alone, and prints the rate and what failed. From the
# first seed on, those that have found something once are played as well.
set -eu
seeds="${SEEDS:-}"
if [ -z "$seeds" ]; then
  if [ -n "${SEED:-}" ]; then seeds=1; else seeds=100; fi
fi
exec "${GO:-go}" test -v -count=1 -run '^Test(Simulation|Regressions)$' -timeout 0 ./internal/harness/sim -args \
  -seeds "$seeds" -seed "${SEED:-1}" -coordinators "${COORDINATORS:-0}" ${TRACE:+-trace}
