#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command in this source tree inside another release of Debian, which is made by debootstrap
# at the first use: minimal, with nothing but what the command installs itself.
#
# Usage: tests/matrix/debian.sh SUITE COMMAND...
#
#   tests/matrix/debian.sh trixie tests/run.sh
#
# It works on a copy of the files that are not ignored by Git, so its builds and this tree's do not
# meet. Both stay, in RLOCK_DEBIAN_ROOT/SUITE (build/debian), and the next call goes on with them.
# Exit status 77: such a system cannot be made here, for want of root, debootstrap or a mirror.
set -euo pipefail

case ${1:-} in
  -h | --help | '')
    sed -n '3,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
    exit 0
    ;;
esac
suite=$1
shift
cd "$(dirname "$0")/../.."
root=$(realpath -m "${RLOCK_DEBIAN_ROOT:-build/debian}/$suite")

cannot() {
  echo "debian.sh: NOT RUN inside Debian $suite: $*" >&2
  exit 77
}

if [[ ! -e $root/.made ]]; then
  [[ $(id -u) == 0 ]] || cannot "needs root"
  if ! command -v debootstrap >/dev/null; then
    { apt-get install -qq -y debootstrap || { apt-get update -qq && apt-get install -qq -y debootstrap; }; } \
      >/dev/null 2>&1 </dev/null || cannot "debootstrap cannot be installed"
  fi
  # Where this machine has its own packages from; else where debootstrap has them from.
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
    grep -m 1 '/debian/\?$' || true)
  rm -rf "$root"
  mkdir -p "$root"
  log=$root.log
  # A mirror that hangs is none.
  if ! timeout 900 debootstrap --variant=minbase "$suite" "$root" ${mirror:+"$mirror"} >"$log" 2>&1 </dev/null; then
    tail -n 5 "$log" >&2
    rm -rf "$root"
    cannot "debootstrap failed"
  fi
  touch "$root/.made"
fi
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"

mkdir -p "$root/src/rlock"
find "$root/src/rlock" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
git ls-files -z --cached --others --exclude-standard |
  tar --null --ignore-failed-read -T - -c 2>/dev/null | tar -x -C "$root/src/rlock"

# The mounts end with the namespace, so that nothing of this machine is in there when it is removed.
# With what is mounted below /dev: the terminals are.
status=0
unshare --mount --propagation private bash -c '
  root=$1
  shift
  mount --bind /proc "$root/proc" && mount --rbind /dev "$root/dev" || exit 78
  cd "$root"
  exec chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
    RLOCK_PRESET="${RLOCK_PRESET:-}" \
    sh -c "cd /src/rlock && exec \"\$@\"" sh "$@"
' bash "$root" "$@" || status=$?
if ((status == 78)); then
  cannot "the kernel refuses the mounts"
fi
exit "$status"
