# SPDX-License-Identifier: Apache-2.0
# Usage: cmake -DSCRIPT=<file.lua> -DOUTPUT=<file.cpp> -P EmbedLua.cmake
#
# The SHA-1 is taken over the exact bytes of the file, as SCRIPT LOAD and EVALSHA do.

cmake_minimum_required(VERSION 3.25)

cmake_path(GET SCRIPT STEM name)
file(READ "${SCRIPT}" text)
file(SHA1 "${SCRIPT}" sha1)

string(FIND "${text}" ")_lua_\"" delimiter)
if(NOT delimiter EQUAL -1)
  message(FATAL_ERROR "${SCRIPT} contains )_lua_\", the delimiter of the raw string it is put in")
endif()
# file(READ) drops the CR of a CR LF, so both are looked for in the bytes.
file(READ "${SCRIPT}" bytes HEX)
string(REGEX REPLACE "(..)" "\\1 " bytes "${bytes}")
if(bytes MATCHES "0d ")
  message(FATAL_ERROR "${SCRIPT} has CR line ends: its SHA-1 would differ between checkouts")
endif()
if(bytes MATCHES "00 ")
  message(FATAL_ERROR "${SCRIPT} holds a NUL byte")
endif()

file(WRITE "${OUTPUT}" "// Generated from ${name}.lua by cmake/EmbedLua.cmake.
#include <rlock/detail/lua_scripts.hpp>

namespace rlock::detail::lua {

constinit const Script ${name}{
    \"${name}\",
    \"${sha1}\",
    R\"_lua_(${text})_lua_\"};

}  // namespace rlock::detail::lua
")
