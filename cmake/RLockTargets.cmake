# SPDX-License-Identifier: Apache-2.0
# Settings shared by rlock's own targets. Nothing here reaches a consumer.

set(RLOCK_GENERATED_DIR "${CMAKE_CURRENT_BINARY_DIR}/generated")

# Warnings, -Werror and sanitizers for a target of this project.
function(rlock_set_target_options target)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast
    -Woverloaded-virtual -Wnon-virtual-dtor -Wcast-qual -Wformat=2 -Wimplicit-fallthrough
    $<$<CXX_COMPILER_ID:GNU>:-Wduplicated-cond>
    $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
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

# The sources, include directories and dependencies of the library, for `rlock` and for the
# static twin that the tests of a shared build link.
function(rlock_configure_library target)
  rlock_set_target_options(${target})
  target_sources(${target} PRIVATE ${RLOCK_SOURCES} ${rlock_lua_sources})
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(${target}
    PUBLIC Threads::Threads
    PRIVATE RLock::hiredis RLock::libuv $<BUILD_INTERFACE:fmt::fmt-header-only>)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    target_compile_definitions(${target} PUBLIC RLOCK_STATIC_DEFINE)
  endif()
endfunction()
