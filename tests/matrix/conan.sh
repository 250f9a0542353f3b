#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a Conan package of rlock and tests it, static and shared. Conan itself comes from PyPI; rlock's
# dependencies stand for themselves as recipes that name the system's libraries, so that no other registry
# is asked.
#
# Usage: tests/matrix/conan.sh
#
# Exit status 77: Conan cannot be had here.
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$PWD/build/conan
mkdir -p "$work"
if [[ ! -x $work/venv/bin/conan ]]; then
  { python3 -m venv "$work/venv" && "$work/venv/bin/pip" install -q 'conan>=2.0,<3'; } >"$work/pip.log" 2>&1 || {
    echo "conan.sh: NOT RUN: Conan cannot be had here" >&2
    exit 77
  }
fi
export CONAN_HOME=$work/home
PATH=$work/venv/bin:$PATH
conan profile detect --force >/dev/null 2>&1
sed -i 's/^compiler.cppstd=.*/compiler.cppstd=20/' "$CONAN_HOME/profiles/default"

system_library() {  # NAME VERSION TARGET LIBRARY...
  local folder=$work/system/$1
  mkdir -p "$folder"
  cat >"$folder/conanfile.py" <<RECIPE
from conan import ConanFile

class System(ConanFile):
    name = "$1"
    version = "$2"
    options = {"shared": [True, False], "header_only": [True, False]}
    default_options = {"shared": True, "header_only": False}

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "${5:-$1}")
        self.cpp_info.set_property("cmake_target_name", "$3")
        self.cpp_info.includedirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.bindirs = []
        self.cpp_info.system_libs = [$4]
RECIPE
  conan create "$folder" >"$folder.log" 2>&1 || {
    tail -n 20 "$folder.log"
    exit 1
  }
}
system_library hiredis 1.2.0 hiredis::hiredis '"hiredis"'
system_library libuv 1.49.2 libuv::libuv '"uv"'
system_library fmt 10.2.1 fmt::fmt-header-only ''

# Its targets are two, one for each library.
mkdir -p "$work/system/openssl"
cat >"$work/system/openssl/conanfile.py" <<'RECIPE'
from conan import ConanFile

class System(ConanFile):
    name = "openssl"
    version = "3.0.11"

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "OpenSSL")
        self.cpp_info.set_property("cmake_find_mode", "both")
        for name, library in (("SSL", "ssl"), ("Crypto", "crypto")):
            part = self.cpp_info.components[library]
            part.set_property("cmake_target_name", "OpenSSL::" + name)
            part.includedirs = []
            part.libdirs = []
            part.bindirs = []
            part.system_libs = [library]
RECIPE
conan create "$work/system/openssl" >"$work/openssl.log" 2>&1

for shared in False True; do
  # Nothing is written into the source tree.
  conan create cmake/packaging/conan -c tools.cmake.cmake_layout:test_folder="$work/test" \
    -c tools.cmake.cmaketoolchain:user_presets= -o "rlock/*:shared=$shared" -o "fmt/*:header_only=True" --no-remote --build=missing \
    >"$work/rlock.log" 2>&1 || {
    tail -n 60 "$work/rlock.log"
    exit 1
  }
  echo "shared=$shared: $(grep -m 1 '^rlock [0-9]' "$work/rlock.log")"
done
