#!/bin/sh
# rootfs.sh KICI OUT.tar: the root file system of the image, from the binary KICI and this machine's git, ssh, bash, busybox and the libraries
# that they need (Debian and its like). Nothing is fetched.
set -eu
kici=$1 out=$2
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
busybox=$(command -v busybox) || { echo "rootfs: busybox is missing: apt-get install busybox-static" >&2; exit 1; }
git_core=$(git --exec-path)
mkdir -p "$root/usr/bin" "$root/etc/ssl/certs" "$root/var/lib/kici" "$root/home/kici" "$root$git_core"
install -d -m 1777 "$root/tmp" "$root/var/tmp"
ln -s usr/bin "$root/bin"
install -m 755 "$kici" "$root/usr/bin/kici"
ln -s kici "$root/usr/bin/kici-admin"
install -m 755 "$busybox" "$root/usr/bin/busybox"
"$busybox" --list | while read -r tool; do ln -s busybox "$root/usr/bin/$tool" 2>/dev/null || true; done

# Programs with the shared libraries that they load.
add() {
  [ -e "$root$1" ] || { mkdir -p "$root$(dirname "$1")"; cp -L "$1" "$root$1"; }
  ldd "$1" 2>/dev/null | grep -o '/[^ ]*' | while read -r lib; do
    [ -e "$root$lib" ] || { mkdir -p "$root$(dirname "$lib")"; cp -L "$lib" "$root$lib"; }
  done
}
add "$(command -v git)"
add "$(command -v bash)"
for helper in git-remote-http git-remote-https git-http-fetch git-sh-i18n git-sh-setup git-submodule; do
  [ ! -e "$git_core/$helper" ] || add "$git_core/$helper"
done
ln -sf "$(command -v git)" "$root$git_core/git"
for builtin in git-upload-pack git-receive-pack git-upload-archive; do ln -sf git "$root/usr/bin/$builtin"; done
[ -z "$(command -v ssh || true)" ] || add "$(command -v ssh)"
for lib in /lib/*/libnss_files.so.2 /lib/*/libnss_dns.so.2 /lib/*/libresolv.so.2; do [ ! -e "$lib" ] || add "$lib"; done

cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
printf 'root:x:0:0:root:/root:/bin/sh\nkici:x:1000:1000:kici jobs:/home/kici:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\nkici:x:1000:\n' >"$root/etc/group"
printf 'hosts: files dns\npasswd: files\ngroup: files\n' >"$root/etc/nsswitch.conf"
pack() { tar -C "$root" --numeric-owner --sort=name --mtime="@${SOURCE_DATE_EPOCH:-0}" "$@"; }
pack --owner=0 --group=0 --exclude=./home/kici -cf "$out" .
pack --owner=1000 --group=1000 -rf "$out" ./home/kici
