# SPDX-License-Identifier: Apache-2.0
# Defines RLock::libuv. libuv 1.45 and later export libuv::uv and libuv::uv_a, 1.44 exports bare uv
# and uv_a, Debian ships a pkg-config file only.
# Installed next to rlockConfig.cmake, because a static rlock links it in its users' builds.
include(FindPackageHandleStandardArgs)

set(_rlock_target "")
foreach(_rlock_round IN ITEMS before after)
  foreach(_rlock_candidate IN ITEMS libuv::uv libuv::uv_a libuv::libuv uv uv_a)
    if(NOT _rlock_target AND TARGET ${_rlock_candidate})
      set(_rlock_target ${_rlock_candidate})
    endif()
  endforeach()
  if(NOT _rlock_target AND _rlock_round STREQUAL "before")
    # No version argument: libuv's own package has no version file before 1.52.
    find_package(libuv CONFIG QUIET)
    set(RLockLibuv_VERSION "${libuv_VERSION}")
  endif()
endforeach()

if(NOT _rlock_target)
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(RLOCK_LIBUV QUIET IMPORTED_TARGET libuv)
    if(TARGET PkgConfig::RLOCK_LIBUV)
      set(_rlock_target PkgConfig::RLOCK_LIBUV)
      set(RLockLibuv_VERSION "${RLOCK_LIBUV_VERSION}")
    endif()
  endif()
endif()

set(RLockLibuv_TARGET "${_rlock_target}")
if(_rlock_target AND NOT RLockLibuv_VERSION)
  get_target_property(_rlock_include ${_rlock_target} INTERFACE_INCLUDE_DIRECTORIES)
  find_path(RLockLibuv_INCLUDE_DIR
    NAMES uv/version.h
    HINTS ${_rlock_include} "${libuv_DIR}/../../../include")
  mark_as_advanced(RLockLibuv_INCLUDE_DIR)
  if(RLockLibuv_INCLUDE_DIR)
    file(STRINGS "${RLockLibuv_INCLUDE_DIR}/uv/version.h" _rlock_version
         REGEX "#define UV_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
    string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*PATCH +([0-9]+).*" "\\1.\\2.\\3"
           RLockLibuv_VERSION "${_rlock_version}")
  endif()
endif()

find_package_handle_standard_args(RLockLibuv
  REQUIRED_VARS RLockLibuv_TARGET
  VERSION_VAR RLockLibuv_VERSION)

if(RLockLibuv_FOUND AND NOT TARGET RLock::libuv)
  add_library(RLock::libuv INTERFACE IMPORTED)
  target_link_libraries(RLock::libuv INTERFACE ${_rlock_target})
endif()
