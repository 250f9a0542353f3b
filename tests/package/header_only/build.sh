#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: build.sh PREFIX OUTPUT, with CXX set: the installed headers and a compiler, nothing else.
set -euo pipefail
cd "$(dirname "$0")/../common"

# The library, which is installed as well, is not looked for.
set -x
"${CXX:-c++}" -std=c++20 -Wall -Wextra -Werror -I"$1/include" main.cpp second.cpp all_of_rlock.cpp \
  -lhiredis -luv -lssl -lcrypto -pthread -o "$2"
