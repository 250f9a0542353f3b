#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: build.sh static|shared OUTPUT, with PKG_CONFIG_PATH and CXX set.
set -euo pipefail
cd "$(dirname "$0")/../common"

linkage=()
if [[ $1 == static ]]; then
  linkage=(--static)
fi
read -ra cflags <<<"$(pkg-config --cflags rlock)"
read -ra libs <<<"$(pkg-config --libs "${linkage[@]}" rlock)"
# Some programs are compiled without features of the language, as a later one, or let the linker optimise.
for flags in -fno-exceptions -fno-rtti; do
  "${CXX:-c++}" -std=c++20 -Wall -Wextra -Werror "$flags" -fsyntax-only "${cflags[@]}" -x c++ - \
    <<<'#include <rlock/rlock.hpp>'
done
"${CXX:-c++}" -std=c++2b -Wall -Wextra -Werror -fsyntax-only "${cflags[@]}" main.cpp second.cpp
"${CXX:-c++}" -std=c++20 -O1 -flto -fno-rtti "${cflags[@]}" main.cpp second.cpp "${libs[@]}" -o "$2.lto"
set -x
"${CXX:-c++}" -std=c++20 -Wall -Wextra -Werror "${cflags[@]}" main.cpp second.cpp "${libs[@]}" \
  -o "$2"
