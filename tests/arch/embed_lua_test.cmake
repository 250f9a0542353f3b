# SPDX-License-Identifier: Apache-2.0
# Tests what cmake/EmbedLua.cmake writes and what it refuses.
#
# Usage: cmake -DWORK_DIR=<directory to write to> -DEMBED=<EmbedLua.cmake> -P embed_lua_test.cmake

cmake_minimum_required(VERSION 3.25)

function(embed text)
  file(WRITE "${WORK_DIR}/sample.lua" "${text}")
  execute_process(
    COMMAND "${CMAKE_COMMAND}" "-DSCRIPT=${WORK_DIR}/sample.lua" "-DOUTPUT=${WORK_DIR}/sample.cpp"
            -P "${EMBED}"
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(result "${result}" PARENT_SCOPE)
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(expect_refusal text why)
  embed("${text}")
  if(result EQUAL 0 OR NOT output MATCHES "${why}")
    message(SEND_ERROR "not refused because of ${why}: ${output}")
  endif()
endfunction()

expect_refusal("return 1\r\n" "CR line ends")
expect_refusal("return 1\rreturn 2\n" "CR line ends")
expect_refusal("return \")_lua_\"\n" "delimiter")

# A part is put in where it is named, and only once.
file(WRITE "${WORK_DIR}/parts/shared.lua" "-- a part; with [brackets]\nlocal two = 2\n")
embed("local one = 1\n-- include: shared\nreturn one + two\n")
file(READ "${WORK_DIR}/sample.cpp" generated)
string(FIND "${generated}"
  "(local one = 1\n-- a part; with [brackets]\nlocal two = 2\nreturn one + two\n)" position)
if(NOT result EQUAL 0 OR position EQUAL -1)
  message(SEND_ERROR "the part is not where it was named: ${output}\n${generated}")
endif()
file(WRITE "${WORK_DIR}/parts/endless.lua" "-- include: endless\n")
expect_refusal("-- include: endless\n" "twice")
expect_refusal("-- include: missing\n" "missing.lua")

# Everything that CMake or C++ could mangle has to arrive unchanged.
set(text "-- [[ ; \\n \"q\" \${x} @y@ $<1:z> \\\nreturn ']' .. \"a;b\"\n")
embed("${text}")
if(NOT result EQUAL 0)
  message(FATAL_ERROR "refused: ${output}")
endif()
string(SHA1 sha1 "${text}")
file(READ "${WORK_DIR}/sample.cpp" generated)
foreach(part IN ITEMS name sha body)
  set(wanted_name "\"sample\",")
  set(wanted_sha "\"${sha1}\",")
  set(wanted_body "R\"_lua_(${text})_lua_\"")
  string(FIND "${generated}" "${wanted_${part}}" position)
  if(position EQUAL -1)
    message(SEND_ERROR "${part}: ${wanted_${part}} is not in\n${generated}")
  endif()
endforeach()
