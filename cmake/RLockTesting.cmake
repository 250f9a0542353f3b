# SPDX-License-Identifier: Apache-2.0
set(RLOCK_TEST_ENVIRONMENT "RLOCK_TEST_TIME_FACTOR=${RLOCK_TEST_TIME_FACTOR}")
if(RLOCK_TEST_REDIS_SERVER)
  list(APPEND RLOCK_TEST_ENVIRONMENT "RLOCK_TEST_REDIS_SERVER=${RLOCK_TEST_REDIS_SERVER}")
endif()
if(RLOCK_SANITIZE)
  list(APPEND RLOCK_TEST_ENVIRONMENT
    "UBSAN_OPTIONS=print_stacktrace=1"
    "TSAN_OPTIONS=second_deadlock_stack=1:history_size=4:suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp")
endif()

# rlock_set_test_target_options(<target> [COMPUTES])
#
# For tests and what they are made of. An optimised build, which is how the library and its users are
# compiled, does not optimise the tests themselves, which mostly wait for it and run once after each
# compilation; only a little those that compute (COMPUTES). Each kind has a precompiled header.
function(rlock_set_test_target_options target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "COMPUTES" "" "")
  rlock_set_target_options(${target})
  set(level 0)
  set(model rlock_test_support)
  if(arg_COMPUTES)
    set(level 1)
    set(model rlock_computing_tests)
    rlock_precompile_computing_header()
  endif()
  target_compile_options(${target} PRIVATE "$<$<CONFIG:Release,RelWithDebInfo>:-O${level}>")
  if(target STREQUAL model)
    rlock_precompile_headers(${target} ${RLOCK_COMMON_HEADERS} <gtest/gtest.h>)
  else()
    rlock_precompile_headers(${target} REUSE_FROM ${model})
  endif()
endfunction()

# The parts that the computing tests share are a target of their own: none of the libraries that they link has GoogleTest.
function(rlock_precompile_computing_header)
  if(NOT TARGET rlock_computing_tests)
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/generated/computing_tests.cpp" CONTENT "")
    add_library(rlock_computing_tests OBJECT "${PROJECT_BINARY_DIR}/generated/computing_tests.cpp")
    target_link_libraries(rlock_computing_tests PRIVATE rlock_internal GTest::gtest)
    rlock_set_test_target_options(rlock_computing_tests COMPUTES)
  endif()
endfunction()

# rlock_set_test_properties(<test>... LABELS <label>... [TIMEOUT <seconds>])
#
# Properties that every ctest test of this project has. TIMEOUT is multiplied by
# RLOCK_TEST_TIME_FACTOR; the default is 60 s. A test counts as two jobs, so that those that only wait,
# the slow ones, can count as half of one, and those that compute as three: see tests/run.sh.
function(rlock_set_test_properties)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "TIMEOUT" "LABELS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  math(EXPR timeout "${arg_TIMEOUT} * ${RLOCK_TEST_TIME_FACTOR}")
  set_tests_properties(${arg_UNPARSED_ARGUMENTS} PROPERTIES
    LABELS "${arg_LABELS}"
    TIMEOUT ${timeout}
    PROCESSORS 2
    ENVIRONMENT "${RLOCK_TEST_ENVIRONMENT}")
endfunction()

# rlock_add_gtest(NAME <target> LABELS <label>... SOURCES <file>...
#                 [GROUP suite|test|case] [APART <regex>] [TOGETHER <number>] [SLOW <regex>] [WAITS <regex>]
#                 [LIBRARIES <target>...] [DEPENDS <target>...] [TIMEOUT <seconds per case>]
#                 [COMPUTES] [OWN_TIME] [APART_FROM_LIBRARY] [UNITS <number> [ALONE <file>...]])
#
# One test program, and the ctest tests that run it. GROUP says what shares a process: all cases of a
# suite (the ctest test is named <target>.<Suite>), a TEST_P with all its parameters or a single TEST
# (<target>.<Suite>.<Test>, the default), or nothing (<target>.<Suite>.<Test>/<parameter>). Cases whose
# <Suite>.<Test>/<parameter> matches APART are tests of their own in any case. With TOGETHER so many
# consecutive tests of a suite share a process, and their names are joined by a +; not those that match SLOW,
# which are labelled slow, nor those in RLOCK_TIMING_<target>, which are labelled timing. Those that match
# WAITS wait more than they compute. DEPENDS names programs that the tests start: their paths are in the
# environment variable RLOCK_TEST_PROGRAM_DIR. With OWN_TIME no pause of the host excuses a failure, since
# the tests' time is not the host's. With APART_FROM_LIBRARY the program brings its own copy of the library.
# For UNITS and ALONE see rlock_compile_together().
#
# ctest asks the program for its cases each time it starts, see RLockDiscoverTests.cmake; files in
# TEST_INCLUDE_FILES that come later find the names of the tests in <target>_cases.
function(rlock_add_gtest)
  cmake_parse_arguments(PARSE_ARGV 0 arg
    "APART_FROM_LIBRARY;COMPUTES;OWN_TIME" "NAME;TIMEOUT;GROUP;APART;TOGETHER;SLOW;WAITS;UNITS" "LABELS;SOURCES;LIBRARIES;DEPENDS;ALONE")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  if(NOT arg_GROUP)
    set(arg_GROUP test)
  endif()
  if(NOT arg_TOGETHER)
    set(arg_TOGETHER 1)
  endif()
  math(EXPR timeout "${arg_TIMEOUT} * ${RLOCK_TEST_TIME_FACTOR}")

  add_executable(${arg_NAME} ${arg_SOURCES})
  set_target_properties(${arg_NAME} PROPERTIES RLOCK_OWN_TIME ${arg_OWN_TIME})
  if(arg_APART_FROM_LIBRARY)
    # Its definitions differ, so that the precompiled header of the others does not fit.
    rlock_set_target_options(${arg_NAME})
    target_compile_options(${arg_NAME} PRIVATE "$<$<CONFIG:Release,RelWithDebInfo>:-O1>")
  else()
    if(arg_COMPUTES)
      rlock_set_test_target_options(${arg_NAME} COMPUTES)
    else()
      rlock_set_test_target_options(${arg_NAME})
    endif()
    target_link_libraries(${arg_NAME} PRIVATE rlock_internal)
  endif()
  if(arg_UNITS)
    rlock_compile_together(${arg_NAME} ${arg_UNITS} ALONE ${arg_ALONE})
  endif()
  target_include_directories(${arg_NAME} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${arg_NAME} PRIVATE ${arg_LIBRARIES} GTest::gtest_main GTest::gmock)
  if(arg_DEPENDS)
    add_dependencies(${arg_NAME} ${arg_DEPENDS})
  endif()

  set(environment "${RLOCK_TEST_ENVIRONMENT}" "RLOCK_TEST_PROGRAM_DIR=${CMAKE_CURRENT_BINARY_DIR}")
  set(discovery "${CMAKE_CURRENT_BINARY_DIR}/${arg_NAME}_discovery.cmake")
  file(GENERATE OUTPUT "${discovery}" CONTENT "set(discover_name [==[${arg_NAME}]==])
set(discover_program [==[$<TARGET_FILE:${arg_NAME}>]==])
set(discover_group [==[${arg_GROUP}]==])
set(discover_apart [==[${arg_APART}]==])
set(discover_together ${arg_TOGETHER})
set(discover_slow [==[${arg_SLOW}]==])
set(discover_waits [==[${arg_WAITS}]==])
set(discover_timing [==[${RLOCK_TIMING_${arg_NAME}}]==])
set(discover_labels [==[${arg_LABELS}]==])
set(discover_timeout [==[${timeout}]==])
set(discover_environment [==[${environment}]==])
set(discover_processors $<IF:$<BOOL:${arg_COMPUTES}>,6,2>)
include([==[${CMAKE_CURRENT_FUNCTION_LIST_DIR}/RLockDiscoverTests.cmake]==])
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${discovery}")
endfunction()

# rlock_add_program_test(NAME <test> COMMAND <target> [ARGS <arg>...] [REDIS]
#                        LABELS <label>... [TIMEOUT <seconds>])
#
# Runs a program as a test. With REDIS, RLOCK_URI names a redis-server started for this test alone.
function(rlock_add_program_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "REDIS" "NAME;COMMAND;TIMEOUT" "ARGS;LABELS")
  set(wrapper "")
  if(arg_REDIS)
    set(wrapper "${PROJECT_SOURCE_DIR}/tests/with_redis.sh")
  endif()
  add_test(NAME ${arg_NAME} COMMAND ${wrapper} $<TARGET_FILE:${arg_COMMAND}> ${arg_ARGS})
  rlock_set_test_properties(${arg_NAME} LABELS ${arg_LABELS} TIMEOUT ${arg_TIMEOUT})
endfunction()
