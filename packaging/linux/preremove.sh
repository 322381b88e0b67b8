#!/bin/sh
# Before removal, not before an upgrade (deb: "upgrade", rpm: 1). Data in /var/lib/kici and the user kici stay.
set -e
case "${1:-}" in upgrade | 1) exit 0 ;; esac
[ -d /run/systemd/system ] || exit 0
systemctl disable --now kici.service kici-agent.service >/dev/null 2>&1 || true
