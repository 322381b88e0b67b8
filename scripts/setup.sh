#!/bin/sh
# Installs what the tests want beyond Go: PostgreSQL, Chromium, git, sshd, iproute2, systemd, Docker, Podman and busybox. Only where this is Debian and root; elsewhere it says
# what is missing and the tests that need it skip loudly.
set -eu
missing=
have() { command -v "$1" >/dev/null 2>&1; }
have git || missing="$missing git"
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$missing postgresql"
have chromium || have chromium-browser || have google-chrome || missing="$missing chromium fonts-dejavu-core"
[ -x /usr/sbin/sshd ] || have sshd || missing="$missing openssh-server openssh-client"
have ip || missing="$missing iproute2"
have dockerd || missing="$missing docker.io iptables"
have podman || missing="$missing podman runc netavark iptables"
have busybox || missing="$missing busybox-static"
{ [ -x /lib/systemd/systemd ] && have dbus-daemon && have pgrep; } || missing="$missing systemd dbus procps"
have cc || [ "${CGO_ENABLED:-1}" = 0 ] || missing="$missing gcc libc6-dev"
case ",${KICI_TEST_REQUIRE:-}," in *,wine,*) have debootstrap || missing="$missing debootstrap" ;; esac
wine() { case ",${KICI_TEST_REQUIRE:-}," in *,wine,*) scripts/wine.sh --make ;; esac; } # minutes, once: only where it may not skip
[ -n "$missing" ] || { wine; exit 0; }
if [ "$(id -u)" = 0 ] && have apt-get; then
  echo "setup: installing$missing" >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq >/dev/null
  # shellcheck disable=SC2086
  apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
  echo "setup: not installed:$missing; the tests that need them will be skipped" >&2
fi
wine
