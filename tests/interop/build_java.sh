#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Java side of the interoperability tests for one version of Redisson.
#
# Usage: tests/interop/build_java.sh VERSION OUTPUT_DIRECTORY
#
# OUTPUT_DIRECTORY/VERSION then has classes/ and lib/*.jar. Nothing is done when that is newer than the
# sources. Libraries come from Maven Central once and are kept.
#
# Prints `ready`, or `unavailable: REASON` when Java, Maven or the libraries cannot be had; fails only when
# RLOCK_TEST_REQUIRE_INTEROP=1 asks for them, or when the program does not compile.
#
# Environment:
#   RLOCK_MAVEN_REPOSITORY   where Maven keeps what it fetched (default: rlock/maven in the user's cache)
#   RLOCK_MAVEN_ARGS         more arguments of mvn, such as `-s settings.xml`
set -euo pipefail

version=$1
output=$(realpath -m "$2")/$version
source=$(cd "$(dirname "$0")/java" && pwd)
repository=${RLOCK_MAVEN_REPOSITORY:-${XDG_CACHE_HOME:-${HOME:-$2}/.cache}/rlock/maven}
log=$output/maven.log

unavailable() {
  echo "unavailable: $1"
  [[ ${RLOCK_TEST_REQUIRE_INTEROP:-} != 1 ]]
  exit
}

mkdir -p "$output" "$repository"
# Test programs run beside each other, and Maven's repository takes one writer at a time.
exec 9>"$repository/lock"
if command -v flock >/dev/null; then
  flock 9
fi

command -v java >/dev/null || unavailable "there is no java in PATH"
java_version=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
if ((${java_version:-0} < 17)); then
  unavailable "Java 17 is needed, this is ${java_version:-unknown}"
fi

stamp=$output/built
if [[ -e $stamp && -z $(find "$source" "$0" -newer "$stamp" -type f | head -n 1) ]]; then
  echo ready
  exit 0
fi
command -v mvn >/dev/null || unavailable "there is no mvn in PATH"
command -v javac >/dev/null || unavailable "there is no javac in PATH"

read -ra extra <<<"${RLOCK_MAVEN_ARGS:-}"
build() {  # MORE ARGUMENTS OF MVN
  rm -rf "$output/classes" "$output/lib"
  MAVEN_OPTS="-Xmx256m -XX:TieredStopAtLevel=1" mvn -q -B -f "$source/pom.xml" \
    -Dmaven.repo.local="$repository" -Dredisson.version="$version" -Dinterop.output="$output" \
    "${extra[@]}" "$@" compile >"$log" 2>&1 </dev/null
}
if ! build -o && ! build; then
  if grep -q 'COMPILATION ERROR' "$log"; then
    cat "$log" >&2
    exit 1
  fi
  unavailable "Maven failed: $(grep -m 1 ERROR "$log" | cut -c 1-200)"
fi
touch "$stamp"
echo ready
