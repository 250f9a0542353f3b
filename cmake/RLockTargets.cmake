# SPDX-License-Identifier: Apache-2.0
# Settings shared by rlock's own targets. Nothing here reaches a consumer.

set(RLOCK_GENERATED_DIR "${CMAKE_CURRENT_BINARY_DIR}/generated")

# The standard headers that most sources include. None of rlock's own: a change of one would compile
# everything anew, and a source that forgets one would not be noticed.
set(RLOCK_COMMON_HEADERS
  <algorithm> <array> <atomic> <chrono> <condition_variable> <coroutine> <cstdint> <functional> <future>
  <map> <memory> <mutex> <optional> <ostream> <random> <set> <span> <sstream> <stop_token> <string>
  <string_view> <system_error> <thread> <unordered_map> <utility> <variant> <vector>)

# ccache passes on whatever uses a precompiled header, unless its configuration allows to compare macros
# less strictly: then it is called with that permission, beside those that it has. And it must not take two
# headers that differ in comments for the same: GCC does not, and would read such a header once more.
set(rlock_ccache "")
if(RLOCK_PRECOMPILED_HEADERS AND "${CMAKE_CXX_COMPILER_LAUNCHER}" MATCHES "(^|/)ccache$")
  execute_process(
    COMMAND "${CMAKE_CXX_COMPILER_LAUNCHER}" --get-config sloppiness
    OUTPUT_VARIABLE rlock_sloppiness OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  string(REGEX MATCHALL "[a-z_]+" rlock_sloppiness "${rlock_sloppiness}")
  list(APPEND rlock_sloppiness pch_defines time_macros)
  list(REMOVE_DUPLICATES rlock_sloppiness)
  list(JOIN rlock_sloppiness "," rlock_sloppiness)
  set(rlock_ccache
    "${CMAKE_COMMAND}" -E env "CCACHE_SLOPPINESS=${rlock_sloppiness}" CCACHE_COMMENTS=1
    "${CMAKE_CXX_COMPILER_LAUNCHER}")
endif()

# rlock_precompile_headers(<target> <header>... | REUSE_FROM <target>)
#
# As target_precompile_headers(PRIVATE), if precompiled headers are wanted. A target can reuse those of
# another whose options are the same.
function(rlock_precompile_headers target)
  if(NOT RLOCK_PRECOMPILED_HEADERS)
    return()
  endif()
  if(rlock_ccache)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${rlock_ccache}")
  endif()
  # Clang writes the time into the file, so that no two are equal to ccache.
  target_compile_options(${target} PRIVATE
    "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
  if(ARGV1 STREQUAL "REUSE_FROM")
    target_precompile_headers(${target} REUSE_FROM ${ARGV2})
  else()
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# Warnings, -Werror and sanitizers for a target of this project.
function(rlock_set_target_options target)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast
    -Woverloaded-virtual -Wnon-virtual-dtor -Wcast-qual -Wformat=2 -Wimplicit-fallthrough
    $<$<CXX_COMPILER_ID:GNU>:-Wduplicated-cond>
    $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
    # Of what a large unit has allocated little can be freed before its end: GCC looks for it all the same,
    # which takes an eighth of its time.
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:${RLOCK_UNITY_BUILD}>>:--param=ggc-min-heapsize=2000000>
    $<$<BOOL:${RLOCK_WERROR}>:-Werror>)
  if(RLOCK_SANITIZE)
    target_compile_options(${target} PRIVATE
      -fsanitize=${RLOCK_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_compile_definitions(${target} PRIVATE _GLIBCXX_ASSERTIONS)
    # GCC 12 warns in standard headers that only become confusing once instrumented.
    target_compile_options(${target} PRIVATE
      $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
      $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
    target_link_options(${target} PRIVATE -fsanitize=${RLOCK_SANITIZE})
  endif()
endfunction()

# For small programs that use rlock as its users do, and link rlock::rlock: warnings, sanitizers, and <rlock/rlock.hpp>
# precompiled once for all of them. That header only, or they would not show which others they need.
function(rlock_set_example_options target)
  rlock_set_target_options(${target})
  rlock_precompile_example_header()
  rlock_precompile_headers(${target} REUSE_FROM rlock_example_header)
endfunction()

function(rlock_precompile_example_header)
  if(NOT TARGET rlock_example_header)
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/generated/example_header.cpp" CONTENT "")
    add_library(rlock_example_header OBJECT "${PROJECT_BINARY_DIR}/generated/example_header.cpp")
    rlock_set_target_options(rlock_example_header)
    target_link_libraries(rlock_example_header PRIVATE rlock::rlock)
    rlock_precompile_headers(rlock_example_header <rlock/rlock.hpp>)
  endif()
endfunction()

# rlock_compile_together(<target> <units> [ALONE <source>...])
#
# With RLOCK_UNITY_BUILD the sources of the target are compiled as so many translation units: in a test, what
# it includes and instantiates takes longer than what it says. ALONE names those whose local names clash with
# others' names.
function(rlock_compile_together target units)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "ALONE")
  if(NOT RLOCK_UNITY_BUILD)
    return()
  endif()
  set_source_files_properties(${arg_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  list(LENGTH arg_ALONE alone)
  math(EXPR batch "(${count} - ${alone} + ${units} - 1) / ${units}")
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
endfunction()

# The engine is headers. Each of these sources compiles all of it, and together they take a third of the time.
set(RLOCK_ENGINE_SOURCES
  src/objects/client.cpp
  src/objects/client_core.cpp
  src/objects/count_down_latch.cpp
  src/objects/multi_lock.cpp
  src/objects/permit_expirable_semaphore.cpp
  src/objects/semaphore.cpp)

# The sources, include directories and dependencies of the library, for `rlock` and for the
# static twin that the tests of a shared build link.
function(rlock_configure_library target)
  rlock_set_target_options(${target})
  target_sources(${target} PRIVATE ${RLOCK_SOURCES} ${rlock_lua_sources})
  rlock_precompile_headers(${target} ${RLOCK_COMMON_HEADERS} <fmt/format.h> <uv.h>)
  if(RLOCK_UNITY_BUILD)
    set(others ${RLOCK_SOURCES} ${rlock_lua_sources})
    list(REMOVE_ITEM others ${RLOCK_ENGINE_SOURCES})
    set_source_files_properties(${RLOCK_ENGINE_SOURCES} PROPERTIES UNITY_GROUP engine)
    set_source_files_properties(${others} PROPERTIES UNITY_GROUP others)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  endif()
  if(NOT RLOCK_UNITY_BUILD)
    # Each of these is a few lines that include nothing of it.
    set_source_files_properties(${rlock_lua_sources} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  endif()
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(${target}
    PUBLIC Threads::Threads
    PRIVATE RLock::hiredis RLock::libuv ${rlock_tls_libraries} $<BUILD_INTERFACE:fmt::fmt-header-only>)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    target_compile_definitions(${target} PUBLIC RLOCK_STATIC_DEFINE)
  endif()
endfunction()
