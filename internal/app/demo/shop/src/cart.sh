#!/usr/bin/env bash
# Adds up a price table read from standard input.
set -euo pipefail
awk '{ sum += $2 } END { printf "%.2f\n", sum }'
