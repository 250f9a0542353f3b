# SPDX-License-Identifier: Apache-2.0
# Defines RLock::hiredis, usable as <hiredis/hiredis.h>, from the first of: a target that exists
# already, hiredis' own CMake package (1.0 and later), pkg-config hints and a plain search (0.14).
# Installed next to rlockConfig.cmake, because a static rlock links it in its users' builds.
include(FindPackageHandleStandardArgs)

set(_rlock_target "")
foreach(_rlock_candidate IN ITEMS hiredis::hiredis hiredis::hiredis_static hiredis)
  if(NOT _rlock_target AND TARGET ${_rlock_candidate})
    set(_rlock_target ${_rlock_candidate})
  endif()
endforeach()

if(NOT _rlock_target)
  # Lower case: Debian 12 ships a HiredisConfig.cmake that defines no target.
  find_package(hiredis CONFIG QUIET)
  foreach(_rlock_candidate IN ITEMS hiredis::hiredis hiredis::hiredis_static)
    if(NOT _rlock_target AND TARGET ${_rlock_candidate})
      set(_rlock_target ${_rlock_candidate})
      set(RLockHiredis_VERSION "${hiredis_VERSION}")
    endif()
  endforeach()
endif()

if(NOT _rlock_target)
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(PC_RLOCK_HIREDIS QUIET hiredis)
  endif()
endif()

# The include directory of hiredis' .pc file and of its 1.0 target is sometimes .../include/hiredis.
find_path(RLockHiredis_INCLUDE_DIR
  NAMES hiredis/hiredis.h
  HINTS ${hiredis_INCLUDE_DIRS} ${PC_RLOCK_HIREDIS_INCLUDEDIR} ${PC_RLOCK_HIREDIS_INCLUDE_DIRS}
  PATH_SUFFIXES ..)
if(NOT _rlock_target)
  find_library(RLockHiredis_LIBRARY
    NAMES hiredis
    HINTS ${PC_RLOCK_HIREDIS_LIBRARY_DIRS} ${PC_RLOCK_HIREDIS_LIBDIR})
endif()

if(RLockHiredis_INCLUDE_DIR AND NOT RLockHiredis_VERSION)
  file(STRINGS "${RLockHiredis_INCLUDE_DIR}/hiredis/hiredis.h" _rlock_version
       REGEX "#define HIREDIS_(MAJOR|MINOR|PATCH) +[0-9]+")
  string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*PATCH +([0-9]+).*" "\\1.\\2.\\3"
         RLockHiredis_VERSION "${_rlock_version}")
endif()

if(_rlock_target)
  set(_rlock_required RLockHiredis_INCLUDE_DIR)
else()
  set(_rlock_required RLockHiredis_LIBRARY RLockHiredis_INCLUDE_DIR)
endif()
find_package_handle_standard_args(RLockHiredis
  REQUIRED_VARS ${_rlock_required}
  VERSION_VAR RLockHiredis_VERSION)

if(RLockHiredis_FOUND AND NOT TARGET RLock::hiredis)
  if(_rlock_target)
    add_library(RLock::hiredis INTERFACE IMPORTED)
    target_link_libraries(RLock::hiredis INTERFACE ${_rlock_target})
  else()
    add_library(RLock::hiredis UNKNOWN IMPORTED)
    set_target_properties(RLock::hiredis PROPERTIES IMPORTED_LOCATION "${RLockHiredis_LIBRARY}")
  endif()
  target_include_directories(RLock::hiredis SYSTEM INTERFACE "${RLockHiredis_INCLUDE_DIR}")
endif()
mark_as_advanced(RLockHiredis_INCLUDE_DIR RLockHiredis_LIBRARY)
