# SPDX-License-Identifier: Apache-2.0
# Defines RLock::lua, Lua 5.1 or LuaJIT, usable as <lua.hpp>: the server of rlock::testing executes scripts
# in the Lua that Redis has. A later Lua is another language. Installed next to rlockConfig.cmake, because
# the test double is linked in its users' builds.
include(FindPackageHandleStandardArgs)

find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_search_module(PC_RLOCK_LUA QUIET lua5.1 lua-5.1 lua51 luajit)
endif()

find_path(RLockLua_INCLUDE_DIR
  NAMES lua.hpp
  HINTS ${PC_RLOCK_LUA_INCLUDEDIR} ${PC_RLOCK_LUA_INCLUDE_DIRS}
  PATH_SUFFIXES lua5.1 lua-5.1 lua51 luajit-2.1 luajit-2.0)
find_library(RLockLua_LIBRARY
  NAMES ${PC_RLOCK_LUA_LIBRARIES} lua5.1 lua-5.1 lua51 luajit-5.1
  HINTS ${PC_RLOCK_LUA_LIBRARY_DIRS} ${PC_RLOCK_LUA_LIBDIR})

set(RLockLua_VERSION "")
if(RLockLua_INCLUDE_DIR AND EXISTS "${RLockLua_INCLUDE_DIR}/lua.h")
  file(STRINGS "${RLockLua_INCLUDE_DIR}/lua.h" _rlock_version REGEX "#define LUA_VERSION_NUM[ \t]+[0-9]+")
  if(_rlock_version MATCHES "501")
    set(RLockLua_VERSION 5.1)
  endif()
endif()

find_package_handle_standard_args(RLockLua
  REQUIRED_VARS RLockLua_LIBRARY RLockLua_INCLUDE_DIR RLockLua_VERSION)

if(RLockLua_FOUND AND NOT TARGET RLock::lua)
  add_library(RLock::lua UNKNOWN IMPORTED)
  set_target_properties(RLock::lua PROPERTIES IMPORTED_LOCATION "${RLockLua_LIBRARY}")
  target_include_directories(RLock::lua SYSTEM INTERFACE "${RLockLua_INCLUDE_DIR}")
  # A static Lua needs them.
  target_link_libraries(RLock::lua INTERFACE m ${CMAKE_DL_LIBS})
endif()
mark_as_advanced(RLockLua_INCLUDE_DIR RLockLua_LIBRARY)
