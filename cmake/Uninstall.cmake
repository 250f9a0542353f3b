# SPDX-License-Identifier: Apache-2.0
# Removes what the last `cmake --install` of a build wrote: cmake -DBUILD_DIR=... -P Uninstall.cmake
# Directories stay: they may be others' as well.
cmake_minimum_required(VERSION 3.25)

file(GLOB manifests "${BUILD_DIR}/install_manifest*.txt")
if(NOT manifests)
  message(FATAL_ERROR "nothing was installed from ${BUILD_DIR}")
endif()
foreach(manifest IN LISTS manifests)
  file(STRINGS "${manifest}" files)
  foreach(file IN LISTS files)
    set(path "$ENV{DESTDIR}${file}")
    if(EXISTS "${path}" OR IS_SYMLINK "${path}")
      message(STATUS "removing ${path}")
      file(REMOVE "${path}")
    endif()
  endforeach()
  file(REMOVE "${manifest}")
endforeach()
