#!/bin/bash
# systemd.sh DIR: a systemd of its own for tests, as PID 1 of namespaces of its own, over a throw-away overlay of this machine's root.
# Inside, DIR is /shared, and /tmp, /run and /dev are empty. It prints the pid of that systemd when it is up, logs to DIR/log, runs until
# its standard input ends, and then leaves nothing. To get in: nsenter -t PID -a -- COMMAND. Needs root, systemd, dbus and the controllers
# of cgroup v1.
# Never start systemd on the machine's own root: its clean-up empties /tmp.
set -eu
D=$(cd "$1" && pwd)
[ -e /sys/fs/cgroup/systemd/cgroup.procs ] && [ -e /sys/fs/cgroup/memory/cgroup.procs ] || { echo "systemd.sh: no hierarchies of cgroup v1 here" >&2; exit 1; }
NAME=kici-systemd-$$
export D
for c in /sys/fs/cgroup/*/; do
  [ -e "${c}cgroup.procs" ] || continue
  mkdir -p "$c$NAME"
  if [ -e "$c$NAME/cpuset.cpus" ]; then
    cat "${c}cpuset.cpus" >"$c$NAME/cpuset.cpus"
    cat "${c}cpuset.mems" >"$c$NAME/cpuset.mems"
  fi
done
init=
finish() {
  trap - EXIT
  [ -z "$init" ] || kill -9 "$init" 2>/dev/null || true
  wait 2>/dev/null || true
  for c in /sys/fs/cgroup/*/; do
    for _ in 1 2 3 4 5 6 7 8 9 10; do
      [ -d "$c$NAME" ] || break
      find "$c$NAME" -depth -type d -exec rmdir {} \; 2>/dev/null || sleep 0.1
    done
  done
}
trap finish EXIT
trap 'exit 143' INT TERM
(
  for c in /sys/fs/cgroup/*/; do [ -d "$c$NAME" ] && echo "$BASHPID" >"$c$NAME/cgroup.procs"; done
  exec unshare --pid --fork --kill-child --mount --cgroup --ipc --uts --net --propagation private bash -euc '
    hostname kici-systemd; ip link set lo up
    R=/mnt; mount -t tmpfs -o mode=755 tmpfs $R; mkdir $R/up $R/work $R/root
    mount -t overlay -o lowerdir=/,upperdir=$R/up,workdir=$R/work overlay $R/root
    N=$R/root
    mount -t proc proc $N/proc; mount -o bind $N/proc/sys $N/proc/sys; mount -o remount,bind,ro $N/proc/sys
    CG=$(ls /sys/fs/cgroup)
    mount -t sysfs sysfs $N/sys; mount -t tmpfs -o mode=755 tmpfs $N/sys/fs/cgroup
    for c in $CG; do case $c in
      unified) ;; # systemd mounts it
      systemd) mkdir $N/sys/fs/cgroup/$c; mount -t cgroup -o none,name=systemd cgroup $N/sys/fs/cgroup/$c;;
      *) mkdir $N/sys/fs/cgroup/$c; mount -t cgroup -o $c cgroup $N/sys/fs/cgroup/$c;;
    esac; done
    mount -o remount,bind,ro $N/sys
    mount -t tmpfs -o mode=755 tmpfs $N/dev
    for n in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0"; do set -- $n; mknod -m 666 $N/dev/$1 c $2 $3; done
    ln -s /proc/self/fd $N/dev/fd; ln -s fd/0 $N/dev/stdin; ln -s fd/1 $N/dev/stdout; ln -s fd/2 $N/dev/stderr
    mkdir $N/dev/pts $N/dev/shm; mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts $N/dev/pts
    ln -s pts/ptmx $N/dev/ptmx; mount -t tmpfs tmpfs $N/dev/shm; : >$N/dev/console
    mount -t tmpfs -o mode=755 tmpfs $N/run; mount -t tmpfs -o mode=1777 tmpfs $N/tmp; mount -t tmpfs tmpfs $N/etc/systemd/system
    mkdir -p $N/shared; mount --bind "$D" $N/shared
    U=$N/run/systemd/system; mkdir -p $U
    for u in tmpfiles-setup tmpfiles-setup-dev tmpfiles-clean sysctl udevd udev-trigger modules-load journald journal-flush timesyncd update-utmp \
      random-seed binfmt firstboot sysusers hwdb-update journal-catalog-update update-done machine-id-commit pcrphase-sysinit pcrphase; do
      ln -s /dev/null $U/systemd-$u.service
    done
    ln -s /dev/null $U/ldconfig.service
    for u in journald journald-dev-log journald-audit udevd-control udevd-kernel; do ln -s /dev/null $U/systemd-$u.socket; done
    printf "[Unit]\nDescription=tests\nRequires=dbus.service\nAfter=dbus.service\nAllowIsolate=yes\n" >$U/ci.target
    mkdir $N/old; cd $N; pivot_root . old; umount -l /old
    export container=ci PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    exec /lib/systemd/systemd --system --unit=ci.target --log-target=console --log-level=info --show-status=no
  '
) </dev/null >"$D/log" 2>&1 &
starter=$!
for _ in $(seq 200); do
  init=$(pgrep -P "$starter" || true)
  if [ -n "$init" ] && nsenter -t "$init" -a -- systemctl is-active -q ci.target 2>/dev/null; then
    echo "$init"
    cat >/dev/null
    exit 0
  fi
  kill -0 "$starter" 2>/dev/null || break
  sleep 0.05
done
echo "systemd.sh: systemd did not start:" >&2
cat "$D/log" >&2
exit 1
