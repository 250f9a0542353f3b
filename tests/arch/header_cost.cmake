# SPDX-License-Identifier: Apache-2.0
# The cost of including <rlock/rlock.hpp>: the lines after the preprocessor, of the standard's headers and of
# our own. The bounds find a header of details, or an expensive one of the standard, that users do not need.
# With libstdc++ 12 the bound is 3 % above what is reached (95,000); the library of a later compiler is
# larger.
#
# Usage: cmake -DCOMPILER=<C++ compiler> -DINCLUDE=<directory>,<directory> -DWORK_DIR=<directory to write to> -P header_cost.cmake

cmake_minimum_required(VERSION 3.25)

set(most_own_lines 2100)

file(MAKE_DIRECTORY "${WORK_DIR}")
file(WRITE "${WORK_DIR}/header_cost.cpp" "#include <rlock/rlock.hpp>\n")
string(REPLACE "," ";" INCLUDE "${INCLUDE}")
list(TRANSFORM INCLUDE PREPEND "-I")
execute_process(
  COMMAND "${COMPILER}" -std=c++20 ${INCLUDE} -E "${WORK_DIR}/header_cost.cpp" -o "${WORK_DIR}/header_cost.ii"
  COMMAND_ERROR_IS_FATAL ANY)
# The lines as the compiler gets them, and those that come from our headers, by the markers before them.
execute_process(
  COMMAND awk "/^# [0-9]+ \"/ { own = $3 ~ /rlock\\/[a-z_\\/]*[.]hpp\"/ } { ++all; if (own && NF > 0 && !/^#/) ++ours }
    END { print all + 0, ours + 0 }" "${WORK_DIR}/header_cost.ii"
  OUTPUT_VARIABLE counts OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(counts)
execute_process(
  COMMAND "${COMPILER}" -std=c++20 ${INCLUDE} -E -dM "${WORK_DIR}/header_cost.cpp"
  OUTPUT_VARIABLE macros COMMAND_ERROR_IS_FATAL ANY)
set(most_lines 130000)
if(macros MATCHES "#define _GLIBCXX_RELEASE 12\n")
  set(most_lines 98000)
endif()
list(GET counts 0 lines)
list(GET counts 1 own_lines)
message("rlock.hpp: ${lines} lines, ${own_lines} of them in our headers")
if(lines GREATER most_lines OR own_lines GREATER most_own_lines)
  message(FATAL_ERROR "more than ${most_lines}, or more than ${most_own_lines} of our own")
endif()
if(own_lines LESS 1000)
  message(FATAL_ERROR "our own lines were not found")
endif()

# Only what every layer stands on may come with it.
file(STRINGS "${WORK_DIR}/header_cost.ii" markers REGEX "^# 1 \".*rlock/detail/[a-z_]+/[a-z_]+[.]hpp\"")
foreach(marker IN LISTS markers)
  if(NOT marker MATCHES "rlock/detail/base/")
    message(FATAL_ERROR "rlock.hpp includes a header of details that users do not need: ${marker}")
  endif()
endforeach()
