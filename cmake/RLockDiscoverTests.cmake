# SPDX-License-Identifier: Apache-2.0
# Included by ctest, once for each program of rlock_add_gtest(), with its arguments in discover_*. Adds the
# tests and leaves their names in <program>_cases.

cmake_policy(VERSION 3.25)

set(${discover_name}_cases "")
if(NOT EXISTS "${discover_program}")
  # As a name that shows in the output what is missing.
  add_test(${discover_name}_NOT_BUILT ${discover_program})
  set_tests_properties(${discover_name}_NOT_BUILT PROPERTIES LABELS "${discover_labels}")
  return()
endif()

execute_process(
  COMMAND "${discover_program}" --gtest_list_tests
  OUTPUT_VARIABLE discover_list
  RESULT_VARIABLE discover_result
  TIMEOUT 60)
if(NOT discover_result EQUAL 0)
  message(FATAL_ERROR "${discover_program} --gtest_list_tests failed: ${discover_result}")
endif()

# A line without indentation begins a suite, the indented ones are its cases; comments name parameters.
string(REGEX REPLACE "[][;]" "_" discover_list "${discover_list}")
string(REGEX REPLACE " +#[^\n]*" "" discover_list "${discover_list}")
string(REPLACE "\n" ";" discover_list "${discover_list}")
set(discover_groups "")
foreach(discover_line IN LISTS discover_list)
  if(discover_line MATCHES "^([^ ].*)[.]$")
    set(discover_suite "${CMAKE_MATCH_1}")
    continue()
  elseif(NOT discover_line MATCHES "^  ([^ ]+)$")
    continue()
  endif()
  set(discover_case "${CMAKE_MATCH_1}")
  if("${discover_suite}.${discover_case}" MATCHES "(^|[./])DISABLED_")
    continue()
  endif()
  set(discover_filter "${discover_suite}.${discover_case}")
  set(discover_test "${discover_filter}")
  if(discover_group STREQUAL "case"
     OR (discover_apart AND discover_filter MATCHES "${discover_apart}"))
    # It is a test of its own.
  elseif(discover_group STREQUAL "suite")
    set(discover_test "${discover_suite}")
    set(discover_filter "${discover_suite}.*")
  elseif(discover_test MATCHES "^(.*[.][^/]*)/")
    set(discover_test "${CMAKE_MATCH_1}")
    set(discover_filter "${discover_test}/*")
  endif()
  set(discover_test "${discover_name}.${discover_test}")
  if(discover_test IN_LIST ${discover_name}_cases)
    math(EXPR discover_count_${discover_test} "${discover_count_${discover_test}} + 1")
  else()
    list(APPEND ${discover_name}_cases "${discover_test}")
    set(discover_count_${discover_test} 1)
    set(discover_filter_${discover_test} "${discover_filter}")
  endif()
endforeach()

foreach(discover_test IN LISTS ${discover_name}_cases)
  set(discover_count "${discover_count_${discover_test}}")
  math(EXPR discover_limit "${discover_timeout} * ${discover_count}")
  if(discover_count GREATER 5)
    math(EXPR discover_limit "${discover_timeout} * 5")
  endif()
  add_test("${discover_test}" "${discover_program}"
    "--gtest_filter=${discover_filter_${discover_test}}")
  # Tests that take long begin early, so that nothing is left to wait for at the end: first the programs whose cases are
  # apart, which have long ones, then the slow tests, then those with many cases.
  set(discover_cost ${discover_count})
  if(discover_group STREQUAL "case")
    set(discover_cost 500)
  elseif(discover_test MATCHES "Slow[.]")
    set(discover_cost 200)
  endif()
  set_tests_properties("${discover_test}" PROPERTIES
    COST ${discover_cost}
    ENVIRONMENT "${discover_environment}"
    LABELS "${discover_labels}"
    PROCESSORS ${discover_processors}
    TIMEOUT ${discover_limit})
  if(discover_count EQUAL 1)
    set_tests_properties("${discover_test}" PROPERTIES SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
  endif()
endforeach()
