#!/usr/bin/env bash
# Prints the price table of a region: article, price, currency.
set -euo pipefail
region=${1:?usage: prices.sh REGION}
case $region in
  eu) factor=100 ;;
  us) factor=112 ;;
  asia) factor=97 ;;
  *) echo "no prices for $region" >&2; exit 2 ;;
esac
for n in $(seq -w 1 40); do
  cents=$(( (10#$n * 137 % 900 + 99) * factor / 100 ))
  printf 'article-%s  %4d.%02d  %s\n' "$n" $((cents / 100)) $((cents % 100)) "${CURRENCY:-EUR}"
done
