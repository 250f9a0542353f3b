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

# The tests labelled timing: each name is <Suite>.<Test> without what stands before and behind its slashes.
foreach(discover_timed IN LISTS discover_timing)
  string(REPLACE "." "[.]" discover_pattern "${discover_timed}")
  set(discover_found "${${discover_name}_cases}")
  list(FILTER discover_found INCLUDE REGEX "[./]${discover_pattern}(/| |$)")
  if(NOT discover_found)
    message(FATAL_ERROR "tests/timing_tests.cmake names ${discover_timed}, which no test is")
  endif()
  foreach(discover_test IN LISTS discover_found)
    set("discover_timed_${discover_test}" TRUE)
  endforeach()
endforeach()

# Consecutive tests of one suite share a process where that is wanted: to start one takes as long as many a test.
# Their names are joined, so that each is still found by its own. A test that is about time has a process for itself.
set(discover_lots "")
set(discover_lot "")
foreach(discover_test IN LISTS ${discover_name}_cases)
  string(REGEX REPLACE "[.][^.]*$" "" discover_suite "${discover_test}")
  if(discover_timed_${discover_test}
     OR discover_together LESS 2
     OR (discover_slow AND discover_test MATCHES "${discover_slow}"))
    list(APPEND discover_lots "${discover_test}")
    set(discover_lot "")
    continue()
  endif()
  if(discover_lot STREQUAL "" OR NOT discover_suite STREQUAL discover_lot_suite
     OR discover_lot_size GREATER_EQUAL discover_together)
    list(APPEND discover_lots "${discover_test}")
    set(discover_lot "${discover_test}")
    set(discover_lot_suite "${discover_suite}")
    set(discover_lot_size 1)
    continue()
  endif()
  string(REGEX REPLACE "^.*[.]" "" discover_case "${discover_test}")
  set(discover_joined "${discover_lot}+${discover_case}")
  set("discover_filter_${discover_joined}"
    "${discover_filter_${discover_lot}}:${discover_filter_${discover_test}}")
  math(EXPR "discover_count_${discover_joined}"
    "${discover_count_${discover_lot}} + ${discover_count_${discover_test}}")
  math(EXPR discover_lot_size "${discover_lot_size} + 1")
  list(POP_BACK discover_lots)
  list(APPEND discover_lots "${discover_joined}")
  set(discover_lot "${discover_joined}")
endforeach()
set(${discover_name}_cases "${discover_lots}")

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
  set(discover_own_labels "${discover_labels}")
  set(discover_own_processors ${discover_processors})
  if(discover_slow AND discover_test MATCHES "${discover_slow}")
    list(APPEND discover_own_labels slow)
    set(discover_own_processors 1)
  elseif(discover_waits AND discover_test MATCHES "${discover_waits}")
    set(discover_own_processors 1)
  endif()
  if(discover_timed_${discover_test})
    list(APPEND discover_own_labels timing)
  endif()
  if(discover_group STREQUAL "case")
    set(discover_cost 500)
  elseif(discover_test MATCHES "Slow[.]")
    set(discover_cost 200)
  endif()
  set_tests_properties("${discover_test}" PROPERTIES
    COST ${discover_cost}
    ENVIRONMENT "${discover_environment}"
    LABELS "${discover_own_labels}"
    PROCESSORS ${discover_own_processors}
    TIMEOUT ${discover_limit})
  if(discover_count EQUAL 1)
    set_tests_properties("${discover_test}" PROPERTIES SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
  endif()
endforeach()
