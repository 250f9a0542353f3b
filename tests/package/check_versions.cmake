# SPDX-License-Identifier: Apache-2.0
# Files that have to repeat the version repeat the right one.
cmake_minimum_required(VERSION 3.25)

file(READ "${SOURCE_DIR}/cmake/packaging/vcpkg/vcpkg.json" port)
string(JSON port_version GET "${port}" version)
if(NOT port_version STREQUAL VERSION)
  message(FATAL_ERROR "vcpkg.json says ${port_version}, version.hpp ${VERSION}")
endif()
file(STRINGS "${SOURCE_DIR}/README.md" lines)
list(LENGTH lines count)
if(count GREATER 150)
  message(FATAL_ERROR "README.md has ${count} lines; what does not belong on its first pages goes to docs/")
endif()
