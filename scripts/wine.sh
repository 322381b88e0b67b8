#!/bin/bash
# wine.sh PROGRAM.exe [ARGUMENT…]: runs a Windows program under Wine 10; go test -exec takes it. wine.sh --make makes the chroot with
# it, once (2 to 3 minutes, 2 GB, needs root and debootstrap): Wine 8 of Debian 12 lacks too much. WINE_ROOT says where it is.
set -eu
R=${WINE_ROOT:-/var/cache/kici-wine}
if [ "${1:-}" = --make ]; then
  [ -e "$R/.made" ] && exit 0
  rm -rf "$R"
  mirror=$(apt-get indextargets --format '$(SITE)' | head -1)
  debootstrap --variant=minbase --include=wine64,wine trixie "$R" ${mirror:+"$mirror"} >&2
  rm -rf "$R"/var/cache/apt/archives/*.deb
  "$0" cmd.exe /c ver >&2
  touch "$R/.made"
  exit 0
fi
export R
exec unshare --mount --propagation private bash -c '
mkdir -p "$R/proc" "$R/dev" "$R/tmp" "$R$PWD"
mount --bind /proc "$R/proc"; mount --rbind /dev "$R/dev"; mount --bind /tmp "$R/tmp"
case $PWD in /tmp*) ;; *) mount --bind "$PWD" "$R$PWD";; esac
exec chroot "$R" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin WINEPREFIX=/root/.wine WINEDEBUG=-all WINEARCH=win64 \
  WINEDLLOVERRIDES="mscoree,mshtml=" KICI_TEST_REQUIRE="${KICI_TEST_REQUIRE:-}" sh -c "cd \"\$0\" && exec wine \"\$@\"" "$PWD" "$@"
' _ "$@"
