#!/bin/sh
# After installing or upgrading: the user whom jobs run as, and the service.
set -e
if ! getent passwd kici >/dev/null; then
  useradd --system --user-group --home-dir /var/lib/kici-agent --no-create-home --shell /usr/sbin/nologin --comment "kici jobs" kici
fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
# An upgrade restarts a running server; its jobs go on. A first install starts nothing: look at /etc/kici/kici.env, then
#   systemctl enable --now kici
systemctl try-restart kici.service || true
