# SPDX-License-Identifier: Apache-2.0
# Makes <rlock/src.hpp>, all sources as one header, and <rlock/testing_src.hpp>, those of the test double.

set(RLOCK_JOIN_SOURCES "${CMAKE_CURRENT_LIST_DIR}/JoinSources.cmake")

# rlock_join_sources(<target> <output> <source>...)
#
# Sources are relative to the project, or generated ones with their full path. The target makes the file.
function(rlock_join_sources target output)
  set(sources "")
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
    list(APPEND sources "${source}")
  endforeach()
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/*.hpp")
  set(list "${RLOCK_GENERATED_DIR}/${target}.txt")
  list(JOIN sources "\n" lines)
  file(CONFIGURE OUTPUT "${list}" CONTENT "${lines}\n" @ONLY)
  add_custom_command(
    OUTPUT "${output}"
    COMMAND "${CMAKE_COMMAND}" "-DROOT=${PROJECT_SOURCE_DIR}" "-DLIST=${list}" "-DOUTPUT=${output}"
            -P "${RLOCK_JOIN_SOURCES}"
    DEPENDS ${sources} ${headers} "${list}" "${RLOCK_JOIN_SOURCES}"
    COMMENT "Joining sources into ${output}"
    VERBATIM)
  add_custom_target(${target} ALL DEPENDS "${output}")
endfunction()
