# SPDX-License-Identifier: Apache-2.0
# rlock::testing, the test double: a static library beside the library, whichever that is, and the same as
# sources for programs without it. A project that only uses rlock does not build it unless it links it.

function(rlock_configure_test_double target library)
  rlock_set_target_options(${target})
  target_sources(${target} PRIVATE ${RLOCK_TESTING_SOURCES})
  rlock_precompile_headers(${target} ${RLOCK_COMMON_HEADERS})
  rlock_compile_together(${target} 1)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(${target} PUBLIC ${library} PRIVATE RLock::lua)
endfunction()

set(rlock_exclude EXCLUDE_FROM_ALL)
if(PROJECT_IS_TOP_LEVEL OR RLOCK_INSTALL)
  set(rlock_exclude "")
endif()
add_library(rlock_testing STATIC ${rlock_exclude})
add_library(rlock::testing ALIAS rlock_testing)
rlock_configure_test_double(rlock_testing rlock)
set_target_properties(rlock_testing PROPERTIES
  EXPORT_NAME testing
  VERIFY_INTERFACE_HEADER_SETS ${PROJECT_IS_TOP_LEVEL})
target_sources(rlock_testing PUBLIC
  FILE_SET HEADERS BASE_DIRS include FILES ${RLOCK_TESTING_HEADERS})

rlock_join_sources(rlock_testing_src_hpp "${RLOCK_GENERATED_DIR}/include/rlock/testing_src.hpp"
  ${RLOCK_TESTING_SOURCES})
add_library(rlock_testing_header_only INTERFACE)
add_library(rlock::testing_header_only ALIAS rlock_testing_header_only)
add_dependencies(rlock_testing_header_only rlock_testing_src_hpp)
target_link_libraries(rlock_testing_header_only INTERFACE rlock_header_only RLock::lua)

# For tests, which reach the Redis in memory itself, and link a static build of rlock in any case.
function(rlock_add_internal_test_double)
  get_target_property(type rlock TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    add_library(rlock_testing_internal INTERFACE)
    target_link_libraries(rlock_testing_internal INTERFACE rlock_testing)
  else()
    add_library(rlock_testing_internal STATIC)
    rlock_configure_test_double(rlock_testing_internal rlock_internal)
  endif()
  target_include_directories(rlock_testing_internal INTERFACE "${PROJECT_SOURCE_DIR}/src")
endfunction()
