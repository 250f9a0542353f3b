# SPDX-License-Identifier: Apache-2.0
# Usage: cmake -DSCRIPT=<file.lua> -DOUTPUT=<file.cpp> -P EmbedLua.cmake
#
# A line `-- include: NAME` is replaced by parts/NAME.lua beside the script. The SHA-1 is taken over
# the bytes that come out, as SCRIPT LOAD and EVALSHA do.

cmake_minimum_required(VERSION 3.25)

cmake_path(GET SCRIPT STEM name)
cmake_path(GET SCRIPT PARENT_PATH directory)
file(READ "${SCRIPT}" text)
set(files "${SCRIPT}")
while(text MATCHES "(^|\n)(-- include: ([a-z0-9_]+)\n)")
  set(line "${CMAKE_MATCH_2}")
  set(part "${directory}/parts/${CMAKE_MATCH_3}.lua")
  if(part IN_LIST files)
    message(FATAL_ERROR "${SCRIPT} includes ${part} twice")
  endif()
  list(APPEND files "${part}")
  file(READ "${part}" part_text)
  string(REPLACE "${line}" "${part_text}" text "${text}")
endwhile()
string(SHA1 sha1 "${text}")

string(FIND "${text}" ")_lua_\"" delimiter)
if(NOT delimiter EQUAL -1)
  message(FATAL_ERROR "${SCRIPT} contains )_lua_\", the delimiter of the raw string it is put in")
endif()
# file(READ) drops the CR of a CR LF, so both are looked for in the bytes.
foreach(file IN LISTS files)
  file(READ "${file}" bytes HEX)
  string(REGEX REPLACE "(..)" "\\1 " bytes "${bytes}")
  if(bytes MATCHES "0d ")
    message(FATAL_ERROR "${file} has CR line ends: its SHA-1 would differ between checkouts")
  endif()
  if(bytes MATCHES "00 ")
    message(FATAL_ERROR "${file} holds a NUL byte")
  endif()
endforeach()

file(WRITE "${OUTPUT}" "// Generated from ${name}.lua by cmake/EmbedLua.cmake.
#include <rlock/detail/executor/lua_scripts.hpp>

namespace rlock::detail::lua {

constinit const Script ${name}{
    \"${name}\",
    \"${sha1}\",
    R\"_lua_(${text})_lua_\"};

}  // namespace rlock::detail::lua
")
