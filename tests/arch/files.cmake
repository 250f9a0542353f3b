# SPDX-License-Identifier: Apache-2.0
# Checks the files of a source tree one by one, whatever they are for: that each names its licence, each
# script says what a caller must know, each id of a test is explained, and no file is left out of the lists.
#
# Usage: cmake -DROOT=<source tree> -P files.cmake
#
# Prints every violation, then fails if there was one.

cmake_minimum_required(VERSION 3.25)

include("${CMAKE_CURRENT_LIST_DIR}/source_tree.cmake")

# -------------------------------------------------------------------------------------------- licence

files_of(licensed
  include/* src/* lua/* cmake/* tests/* examples/* bench/* docs/*.in .ci/*
  CMakeLists.txt .gitignore .gitattributes .editorconfig .clang-format .clang-tidy)
foreach(file IN LISTS licensed)
  # JSON has no comments; documents, pictures and package-config templates are covered by LICENSE.
  if(file MATCHES "(/usage|\\.(json|md|svg|png|txt|pc\\.in))$" AND NOT file MATCHES "CMakeLists\\.txt$")
    continue()
  endif()
  file(READ "${ROOT}/${file}" head LIMIT 300)
  if(NOT head MATCHES "SPDX-License-Identifier: Apache-2\\.0")
    violation("${file}" "has no SPDX-License-Identifier: Apache-2.0 in its first lines")
  endif()
endforeach()

# ---------------------------------------------------------------------------------------- Lua headers

# Parts are no scripts of their own.
files_of(scripts lua/*.lua)
list(FILTER scripts EXCLUDE REGEX "^lua/parts/")
foreach(file IN LISTS scripts)
  file(READ "${ROOT}/${file}" text)
  string(REGEX REPLACE "[][;]" " " text "${text}")
  string(REGEX MATCH "^(--[^\n]*\n)+" opening "${text}")
  foreach(part IN ITEMS "KEYS" "ARGV" "Returns" "When it runs twice" "Cost")
    if(NOT opening MATCHES "${part}")
      violation("${file}" "its opening comment does not say: ${part}")
    endif()
  endforeach()
endforeach()

# ---------------------------------------------------------------------------------------- ids of tests
# The ids that test names begin with are explained in the tables of tests/catalogue.md.

if(EXISTS "${ROOT}/tests/catalogue.md")
  # Only what stands in a table, and in its first column.
  file(STRINGS "${ROOT}/tests/catalogue.md" rows REGEX "^\\| *`")
  set(known_ids "")
  foreach(row IN LISTS rows)
    string(REGEX REPLACE "^\\|([^|]*)\\|.*$" "\\1" cell "${row}")
    string(REGEX MATCHALL "[A-Z]+[0-9]*" ids "${cell}")
    list(APPEND known_ids ${ids})
  endforeach()

  files_of(test_files tests/*.cpp)
  foreach(file IN LISTS test_files)
    read_code("${file}" code)
    string(REGEX MATCHALL "TEST(_F|_P)?\\([ \n]*[A-Za-z0-9_]+,[ \n]*[A-Z]+[0-9]+_[A-Za-z0-9_]*" tests "${code}")
    foreach(test IN LISTS tests)
      string(REGEX REPLACE "^.*[, \n]" "" name "${test}")
      while(name MATCHES "^([A-Z]+)([0-9]+)_(.*)$")
        set(name "${CMAKE_MATCH_3}")
        # A table lists the letters, or each number where every one stands for something else.
        if(NOT "${CMAKE_MATCH_1}" IN_LIST known_ids AND NOT "${CMAKE_MATCH_1}${CMAKE_MATCH_2}" IN_LIST known_ids)
          violation("${file}" "tests/catalogue.md does not explain ${CMAKE_MATCH_1}${CMAKE_MATCH_2}")
        endif()
      endwhile()
    endforeach()
  endforeach()
endif()

# ------------------------------------------------------------------------------------- lists of files
# A file that no list names is built, installed and tested by nobody.

file(READ "${ROOT}/CMakeLists.txt" lists)
files_of(listed include/*.hpp src/*.cpp lua/*.lua)
list(FILTER listed EXCLUDE REGEX "^lua/parts/")
foreach(file IN LISTS listed)
  string(FIND "${lists}" "  ${file}" position)
  if(position EQUAL -1)
    violation("${file}" "is not listed in CMakeLists.txt")
  endif()
endforeach()

foreach(directory IN ITEMS tests tests/interop examples bench)
  if(EXISTS "${ROOT}/${directory}/CMakeLists.txt")
    file(READ "${ROOT}/${directory}/CMakeLists.txt" lists)
    file(GLOB_RECURSE listed RELATIVE "${ROOT}/${directory}" "${ROOT}/${directory}/*.cpp")
    list(FILTER listed EXCLUDE REGEX "^(package|arch|interop|misuse)/")
    foreach(file IN LISTS listed)
      string(REGEX REPLACE "\\.cpp$" "" name "${file}")
      string(FIND "${lists}" "${name}" position)
      if(position EQUAL -1)
        violation("${directory}/${file}" "is not listed in ${directory}/CMakeLists.txt")
      endif()
    endforeach()
  endif()
endforeach()

judge(files.cmake)
