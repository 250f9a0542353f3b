# SPDX-License-Identifier: Apache-2.0
# How check.cmake and files.cmake look at the source tree ROOT and say what they have found in it.

set(violations 0)
function(violation file text)
  message("${file}: ${text}")
  math(EXPR count "${violations} + 1")
  set(violations ${count} PARENT_SCOPE)
endfunction()

# The text of a C++ file without comments, with nothing in it that a CMake list could trip over.
function(read_code file out)
  file(READ "${ROOT}/${file}" code)
  string(REGEX REPLACE "[][;]" " " code "${code}")
  string(REGEX REPLACE "/\\*([^*]|\\*+[^*/])*\\*+/" " " code "${code}")
  string(REGEX REPLACE "//[^\n]*" "" code "${code}")
  set(${out} "${code}" PARENT_SCOPE)
endfunction()

function(files_of out)
  set(found "")
  foreach(pattern IN LISTS ARGN)
    if(pattern MATCHES "/")
      file(GLOB_RECURSE matches RELATIVE "${ROOT}" "${ROOT}/${pattern}")
    else()
      file(GLOB matches RELATIVE "${ROOT}" "${ROOT}/${pattern}")
    endif()
    list(APPEND found ${matches})
  endforeach()
  list(SORT found)
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

# At the end of a script: fails if there was a violation.
function(judge script)
  if(violations GREATER 0)
    message(FATAL_ERROR "${violations} violations of the rules in tests/arch/${script}")
  endif()
endfunction()
