#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what a build of rlock needs and this machine lacks; says nothing when nothing is missing.
#
# Usage: cmake/install_packages.sh [GROUP...]
#   build   compiler, CMake, Ninja, the libraries (always included)
#   test    GoogleTest, Lua 5.1, Asio, Boost.Asio, redis-server
#   interop Java 17 or later, Maven
#   lint    clang, clang-format, clang-tidy
#   docs    Doxygen, Graphviz, Python
#   bench   Valgrind, which counts instructions
#   metrics prometheus-cpp and spdlog, for the component rlock::prometheus and an example
#   shells  zsh, fish and mandoc, which read the completions and the manual page of the program
#   databases  MariaDB, its server and client without their set-up, and SQLite: for an example beside the
#           lock of a row, and for the SQL of docs/fencing.md
#
# With apt and as root the missing packages are installed. Anywhere else they are listed and the script fails.
# A program or library that is found without a package, such as a redis-server of your own, counts.
set -euo pipefail

has_command() { command -v "$1" >/dev/null; }

has_header() {
  local compiler=${CXX:-c++}
  if has_command "$compiler"; then
    echo "#include <$1>" | "$compiler" -std=c++20 -x c++ -M - >/dev/null 2>&1
  else
    [[ -e /usr/include/$1 || -e /usr/local/include/$1 ]]
  fi
}

has_java() {  # LEAST VERSION
  local version
  has_command javac && version=$(javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p') &&
    ((${version:-0} >= $1))
}

has_lua() {
  has_command pkg-config && { pkg-config --exists lua5.1 || pkg-config --exists lua-5.1; }
}

# Each release of Debian has another Java.
known_package() {  # PACKAGE...   the first that apt can install; the first of all if it knows none
  local package
  for package in "$@"; do
    if has_command apt-cache && apt-cache policy "$package" 2>/dev/null | grep -q 'Candidate: [0-9]'; then
      echo "$package"
      return
    fi
  done
  echo "$1"
}

missing=()
need() {  # PACKAGE PROBE [ARGUMENT...]
  "${@:2}" || missing+=("$1")
}

find_missing() {
  missing=()
  need g++ has_command "${CXX:-c++}"
  need cmake has_command cmake
  need ninja-build has_command ninja
  need pkg-config has_command pkg-config
  need libhiredis-dev has_header hiredis/hiredis.h
  need libuv1-dev has_header uv.h
  need libfmt-dev has_header fmt/format.h
  need libssl-dev has_header openssl/ssl.h
  need libcli11-dev has_header CLI/CLI.hpp
  need nlohmann-json3-dev has_header nlohmann/json.hpp
  local group
  for group in "$@"; do
    case $group in
      build) ;;
      test)
        need libgtest-dev has_header gtest/gtest.h
        need libgmock-dev has_header gmock/gmock.h
        need liblua5.1-0-dev has_lua
        need libasio-dev has_header asio.hpp
        need libboost-dev has_header boost/asio.hpp
        # pkg-config --static names these two besides where OpenSSL compresses, as in Debian 13.
        need zlib1g-dev has_header zlib.h
        need libzstd-dev has_header zstd.h
        need redis-server has_command "${RLOCK_TEST_REDIS_SERVER:-redis-server}"
        ;;
      interop)
        need "$(known_package openjdk-17-jdk-headless openjdk-21-jdk-headless default-jdk-headless)" \
          has_java 17
        need maven has_command mvn
        ;;
      lint)
        need clang has_command clang++
        need clang-format has_command clang-format
        need clang-tidy has_command clang-tidy
        ;;
      docs)
        need doxygen has_command doxygen
        need python3 has_command python3
        need graphviz has_command dot
        ;;
      bench)
        need valgrind has_command valgrind
        ;;
      metrics)
        need prometheus-cpp-dev has_header prometheus/collectable.h
        need libspdlog-dev has_header spdlog/spdlog.h
        ;;
      shells)
        need zsh has_command zsh
        need fish has_command fish
        need mandoc has_command mandoc
        ;;
      databases)
        need mariadb-server-core has_command mariadbd
        need mariadb-client-core has_command mariadb
        need sqlite3 has_command sqlite3
        ;;
      *)
        echo "install_packages.sh: unknown group $group" >&2
        exit 2
        ;;
    esac
  done
}

find_missing "$@"
if ((${#missing[@]} == 0)); then
  exit 0
fi

if ! has_command apt-get || [[ $(id -u) != 0 ]]; then
  {
    echo "rlock needs what these Debian packages hold: ${missing[*]}"
    if has_command apt-get; then
      echo "Install them as root: apt-get install ${missing[*]}"
    else
      echo "Install their counterparts with your system's package manager, then run this again."
    fi
  } >&2
  exit 1
fi

# Debian starts a redis-server as soon as it is installed, and at every boot. Tests start their own,
# so that one is not wanted. The policy forbids only this service, and only while this script runs.
policy=/usr/sbin/policy-rc.d
wrote_policy=
log=$(mktemp)
cleanup() {
  if [[ -n $wrote_policy ]]; then
    rm -f "$policy"
  fi
  rm -f "$log"
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

installs_redis=
if [[ " ${missing[*]} " == *" redis-server "* ]]; then
  installs_redis=yes
  if [[ ! -e $policy ]]; then
    wrote_policy=yes
    cat >"$policy" <<POLICY
#!/bin/sh
case "\$1" in redis-server*) [ ! -d /proc/$$ ] || exit 101 ;; esac
exit 0
POLICY
    chmod 755 "$policy"
  fi
fi

apt_install() {
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
    -o Dpkg::Use-Pty=0 "${missing[@]}" >"$log" 2>&1 </dev/null
}

echo "installing ${missing[*]}"
# The lists are fetched only where there are none or where they are too old to be of use.
if ! ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1 || ! apt_install; then
  # With other lists another package may be the one that is needed.
  if ! apt-get update -qq >"$log" 2>&1 || ! { find_missing "$@" && apt_install; }; then
    cat "$log" >&2
    echo "install_packages.sh: apt-get could not install ${missing[*]}" >&2
    exit 1
  fi
fi

if [[ -n $installs_redis ]] && has_command update-rc.d; then
  update-rc.d redis-server disable >/dev/null 2>&1 || true
fi

find_missing "$@"
if ((${#missing[@]} > 0)); then
  echo "install_packages.sh: still missing after the installation: ${missing[*]}" >&2
  exit 1
fi
