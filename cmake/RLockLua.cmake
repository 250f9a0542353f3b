# SPDX-License-Identifier: Apache-2.0
# Embeds Lua scripts: each becomes one source file defining one rlock::detail::lua::Script.

set(RLOCK_EMBED_LUA "${CMAKE_CURRENT_LIST_DIR}/EmbedLua.cmake")

# rlock_embed_lua(<sources-var> <header-var> <script>...)
#
# Sets <sources-var> to the generated sources and <header-var> to the generated header that declares
# the scripts and is included by <rlock/detail/executor/lua_scripts.hpp>.
function(rlock_embed_lua sources_var header_var)
  set(directory "${RLOCK_GENERATED_DIR}/lua")
  set(header "${RLOCK_GENERATED_DIR}/include/rlock/detail/executor/lua_names.hpp")
  set(sources "")
  set(RLOCK_LUA_DECLARATIONS "")
  set(RLOCK_LUA_POINTERS "")
  file(GLOB parts CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/lua/parts/*.lua")
  foreach(script IN LISTS ARGN)
    cmake_path(GET script STEM name)
    cmake_path(ABSOLUTE_PATH script BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
    if(NOT name MATCHES "^[a-z][a-z0-9_]*$")
      message(FATAL_ERROR "${script}: the file name must be a C++ identifier")
    endif()
    add_custom_command(
      OUTPUT "${directory}/${name}.cpp"
      COMMAND "${CMAKE_COMMAND}" "-DSCRIPT=${script}" "-DOUTPUT=${directory}/${name}.cpp"
              -P "${RLOCK_EMBED_LUA}"
      DEPENDS "${script}" ${parts} "${RLOCK_EMBED_LUA}"
      COMMENT "Embedding ${name}.lua"
      VERBATIM)
    list(APPEND sources "${directory}/${name}.cpp")
    string(APPEND RLOCK_LUA_DECLARATIONS "extern RLOCK_EXPORT const Script ${name};\n")
    string(APPEND RLOCK_LUA_POINTERS "    &${name},\n")
  endforeach()

  # configure_file leaves an unchanged file alone, so a reconfiguration rebuilds nothing.
  configure_file("${PROJECT_SOURCE_DIR}/cmake/lua_names.hpp.in" "${header}" @ONLY)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/lua_names.cpp.in" "${directory}/all_scripts.cpp" @ONLY)
  list(APPEND sources "${directory}/all_scripts.cpp")
  set(${sources_var} "${sources}" PARENT_SCOPE)
  set(${header_var} "${header}" PARENT_SCOPE)
endfunction()
