#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the Debian packages inside a minimal Debian, and installs and uses them inside another, which has
# nothing but what the packages themselves ask for, a compiler, CMake and Redis.
#
# Usage: tests/matrix/packages.sh SUITE
#
# Exit status 77: such a system cannot be made here.
set -euo pipefail
cd "$(dirname "$0")/../.."

fail() {
  echo "packages.sh: $*" >&2
  exit 1
}

make_packages() {
  mkdir -p build
  bash cmake/install_packages.sh build
  # The test double is packaged where there is Lua.
  apt-get install -qq -y liblua5.1-0-dev file dpkg-dev >/dev/null 2>&1
  cmake --workflow --preset deb >build/packages.log 2>&1 || {
    tail -n 40 build/packages.log
    return 1
  }
  ls build/deb/packages

  # The preset release can be installed where there is no GoogleTest.
  {
    cmake --preset release -B build/without_tests -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON &&
      cmake --build build/without_tests -j "$(nproc)" &&
      cmake --install build/without_tests --prefix build/installed
  } >build/without_tests.log 2>&1 || {
    tail -n 40 build/without_tests.log
    return 1
  }
  [[ -e build/installed/share/doc/rlock/LICENSE ]] || fail "the licence is not installed"
}

use_packages() {
  local debs=(build/packages/*.deb)
  export DEBIAN_FRONTEND=noninteractive
  ((${#debs[@]} == 3)) || fail "expected three packages, found: ${debs[*]}"

  # The program alone brings the library it needs, and nothing for development.
  apt-get install -qq -y ./build/packages/librlock0*.deb ./build/packages/rlock_*.deb >build/use.log 2>&1 ||
    fail "$(tail -n 20 build/use.log)"
  rlock --version
  ! dpkg -l | grep -E '^ii +lib(hiredis|uv1|ssl|fmt)-dev' || fail "a runtime package brings -dev packages"
  apt-get install -qq -y ./build/packages/librlock-dev*.deb g++ cmake ninja-build pkgconf redis-server \
    liblua5.1-0-dev \
    >>build/use.log 2>&1 || fail "$(tail -n 20 build/use.log)"
  rm -rf build/use
  cmake -S tests/package/find_package -B build/use -G Ninja >>build/use.log 2>&1 &&
    cmake --build build/use >>build/use.log 2>&1 || fail "$(tail -n 20 build/use.log)"
  tests/with_redis.sh build/use/consumer
  build/use/double
  tests/package/pkg_config/build.sh shared build/use/by_pkg_config 2>>build/use.log
  tests/with_redis.sh build/use/by_pkg_config
  tests/package/header_only/build.sh /usr build/use/header_only >>build/use.log 2>&1 ||
    fail "$(tail -n 20 build/use.log)"
  tests/with_redis.sh build/use/header_only
  tests/with_redis.sh rlock run packages -- echo "rlock run works"

  apt-get remove -qq -y rlock librlock-dev 'librlock0*' >>build/use.log 2>&1
  local left
  left=$(find /usr -path '*rlock*' ! -path '/usr/src/*' ! -path '/usr/share/doc/*' -type f)
  [[ -z $left ]] || fail "left behind: $left"
}

case ${1:-} in
  --make) make_packages ;;
  --use) use_packages ;;
  -h | --help | '') sed -n '3,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" ;;
  *)
    suite=$1
    root=${RLOCK_DEBIAN_ROOT:-build/debian}
    RLOCK_DEBIAN_ROOT=$root tests/matrix/debian.sh "$suite" tests/matrix/packages.sh --make
    # Made without anything that building needs.
    used=$root-use
    rm -rf "${used:?}/$suite/src/rlock/build"
    RLOCK_DEBIAN_ROOT=$used tests/matrix/debian.sh "$suite" mkdir -p build/packages
    cp "$root/$suite"/src/rlock/build/deb/packages/*.deb "$used/$suite/src/rlock/build/packages/"
    RLOCK_DEBIAN_ROOT=$used tests/matrix/debian.sh "$suite" tests/matrix/packages.sh --use
    ;;
esac
