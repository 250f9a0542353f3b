# SPDX-License-Identifier: Apache-2.0
# One step of the package tests; tests/package/CMakeLists.txt passes the variables.

cmake_minimum_required(VERSION 3.25)

if(LINKAGE STREQUAL "shared")
  set(shared ON)
else()
  set(shared OFF)
endif()
set(prefix "${WORK_DIR}/prefix")
set(consumer "${CMAKE_CURRENT_LIST_DIR}/${STEP}")
set(build "${WORK_DIR}/${STEP}")

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "failed (${result}): ${command}")
  endif()
endfunction()

function(configure source binary)
  run("${CMAKE_COMMAND}" -S "${source}" -B "${binary}" -G "${GENERATOR}"
    "-DCMAKE_CXX_COMPILER=${CXX}"
    "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}"
    "-DCMAKE_BUILD_TYPE=Debug"
    "-DCMAKE_CXX_FLAGS_DEBUG=-O0"
    "-DBUILD_SHARED_LIBS=${shared}"
    ${ARGN})
endfunction()

function(run_program)
  run("${CMAKE_CURRENT_LIST_DIR}/../with_redis.sh" ${ARGV})
endfunction()

if(STEP STREQUAL "add_subdirectory")
  file(REMOVE_RECURSE "${build}")
  # As one translation unit, which takes a fraction of the time; the build around this test compiles every
  # source by itself.
  configure("${consumer}" "${build}" "-DRLOCK_SOURCE_DIR=${SOURCE_DIR}" -DCHECK_DEFAULTS=ON
    -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=0 -DCMAKE_CXX_FLAGS=-Wno-subobject-linkage)
  if(BUILT_DIR)
    # This linkage is there already, see install.
    return()
  endif()
  run("${CMAKE_COMMAND}" --build "${build}")
  run_program("${build}/consumer")
  run("${build}/double")

elseif(STEP STREQUAL "install")
  # Installs what is built already, around this test or by the step before: compiling rlock takes longer
  # than all the rest.
  file(REMOVE_RECURSE "${prefix}" "${prefix}.installed")
  if(BUILT_DIR)
    set(build "${BUILT_DIR}")
  else()
    set(build "${WORK_DIR}/add_subdirectory")
    run("${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/add_subdirectory" -B "${build}"
      -DCHECK_DEFAULTS=OFF
      -DRLOCK_INSTALL=ON
      "-DCMAKE_INSTALL_LIBDIR=${LIBDIR}")
    run("${CMAKE_COMMAND}" --build "${build}")
  endif()
  # An installation can be removed.
  run("${CMAKE_COMMAND}" --install "${build}" --prefix "${prefix}.installed")
  run("${CMAKE_COMMAND}" "-DBUILD_DIR=${build}" -P "${SOURCE_DIR}/cmake/Uninstall.cmake")
  file(GLOB_RECURSE left "${prefix}.installed/*")
  if(left)
    message(FATAL_ERROR "left after uninstalling: ${left}")
  endif()
  run("${CMAKE_COMMAND}" --install "${build}" --prefix "${prefix}.installed")
  if(NOT EXISTS "${prefix}.installed/share/doc/rlock/LICENSE")
    message(FATAL_ERROR "the licence is not installed")
  endif()
  # Nothing may remember where it was installed.
  file(RENAME "${prefix}.installed" "${prefix}")

elseif(STEP STREQUAL "find_package")
  file(REMOVE_RECURSE "${build}")
  configure("${consumer}" "${build}"
    "-DCMAKE_PREFIX_PATH=${prefix}"
    "-DWITH_PROMETHEUS=${WITH_PROMETHEUS}" "-DASIO_INCLUDE_DIR=${ASIO_INCLUDE_DIR}" "-DBOOST_ASIO_INCLUDE_DIR=${BOOST_ASIO_INCLUDE_DIR}"
    -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON)
  run("${CMAKE_COMMAND}" --build "${build}")
  run_program("${build}/consumer")
  if(WITH_PROMETHEUS)
    run_program("${build}/scraped")
  endif()
  run("${build}/double")

elseif(STEP STREQUAL "pkg_config")
  file(REMOVE_RECURSE "${build}")
  file(MAKE_DIRECTORY "${build}")
  set(ENV{PKG_CONFIG_PATH} "${prefix}/${LIBDIR}/pkgconfig")
  set(ENV{CXX} "${CXX}")
  run("${consumer}/build.sh" "${LINKAGE}" "${build}/consumer")
  set(ENV{LD_LIBRARY_PATH} "${prefix}/${LIBDIR}")
  run_program("${build}/consumer")
  run_program("${build}/consumer.lto")

elseif(STEP STREQUAL "exports")
  # A symbol that is exported by mistake is part of the interface for ever, and one of another library that
  # this one contains meets that library's own in the same process.
  file(GLOB library "${prefix}/${LIBDIR}/librlock.so")
  execute_process(COMMAND nm --dynamic --defined-only --demangle "${library}"
    OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX REPLACE "\n$" "" symbols "${symbols}")
  string(REPLACE ";" "," symbols "${symbols}")
  string(REPLACE "\n" ";" symbols "${symbols}")
  list(LENGTH symbols count)
  set(inner "")
  foreach(symbol IN LISTS symbols)
    string(REGEX REPLACE "^[0-9a-f]+ . " "" name "${symbol}")
    if(name MATCHES "^((typeinfo( name)?|vtable|guard variable) for )?rlock::"
        AND NOT name MATCHES "^((typeinfo( name)?|vtable) for )?rlock::detail::")
      continue()
    endif()
    list(APPEND inner "${name}")
  endforeach()
  list(JOIN inner "\n  " text)
  message(STATUS "${count} symbols, of which not of the public interface:\n  ${text}")
  file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/exported_details.txt" known REGEX "^[^#]")
  set(unknown "")
  foreach(name IN LISTS inner)
    set(found OFF)
    foreach(prefix_of IN LISTS known)
      string(FIND "${name}" "${prefix_of}" at)
      if(at EQUAL 0)
        set(found ON)
      endif()
    endforeach()
    if(NOT found)
      list(APPEND unknown "${name}")
    endif()
  endforeach()
  if(unknown OR count LESS 100)
    list(JOIN unknown "\n  " text)
    message(FATAL_ERROR "${library} exports what tests/package/exported_details.txt does not name:\n  ${text}")
  endif()

elseif(STEP STREQUAL "header_only")
  file(REMOVE_RECURSE "${build}")
  configure("${consumer}" "${build}"
    "-DCMAKE_PREFIX_PATH=${prefix}"
    -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON)
  run("${CMAKE_COMMAND}" --build "${build}")
  run_program("${build}/consumer")
  run("${build}/double")
  set(ENV{CXX} "${CXX}")
  run("${consumer}/build.sh" "${prefix}" "${build}/bare")
  run_program("${build}/bare")

else()
  message(FATAL_ERROR "unknown step ${STEP}")
endif()
