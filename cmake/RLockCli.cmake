# SPDX-License-Identifier: Apache-2.0
# The program `rlock`, its manual page and its completions. It is no part of the library: it uses the public
# interface, and CLI11 and nlohmann-json besides.

find_package(CLI11 CONFIG QUIET)
find_package(nlohmann_json CONFIG QUIET)
if(NOT CLI11_FOUND OR NOT nlohmann_json_FOUND)
  message(WARNING "CLI11 or nlohmann-json was not found (libcli11-dev, nlohmann-json3-dev on Debian): "
    "the program rlock is not built")
  return()
endif()

# All of it but main(), so that tests can link the parts.
add_library(rlock_cli_parts STATIC ${RLOCK_CLI_SOURCES})
rlock_set_target_options(rlock_cli_parts)
target_include_directories(rlock_cli_parts PUBLIC "${PROJECT_SOURCE_DIR}/src")
target_link_libraries(rlock_cli_parts
  PUBLIC rlock
  PRIVATE CLI11::CLI11 nlohmann_json::nlohmann_json fmt::fmt-header-only)
if(RLOCK_PRECOMPILED_HEADERS)
  rlock_precompile_headers(rlock_cli_parts ${RLOCK_COMMON_HEADERS} <fmt/format.h>)
  rlock_compile_together(rlock_cli_parts 1)
endif()

add_executable(rlock_cli ${RLOCK_CLI_MAIN})
rlock_set_target_options(rlock_cli)
target_link_libraries(rlock_cli PRIVATE rlock_cli_parts fmt::fmt-header-only)
set_target_properties(rlock_cli PROPERTIES
  OUTPUT_NAME rlock
  RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")

if(RLOCK_INSTALL)
  get_target_property(rlock_type rlock TYPE)
  if(rlock_type STREQUAL "SHARED_LIBRARY" AND NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" AND NOT CMAKE_INSTALL_RPATH)
    # An installation can be moved, and need not be where the system looks for libraries.
    file(RELATIVE_PATH rlock_from_bin "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
    set_target_properties(rlock_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${rlock_from_bin}")
  endif()
  install(TARGETS rlock_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT cli)
  # The program writes them itself, from the table of its options.
  if(NOT CMAKE_CROSSCOMPILING)
    set(rlock_cli_files "${PROJECT_BINARY_DIR}/cli")
    file(MAKE_DIRECTORY "${rlock_cli_files}")
    set(rlock_cli_outputs "")
    foreach(shell IN ITEMS bash zsh fish)
      add_custom_command(OUTPUT "${rlock_cli_files}/rlock.${shell}"
        COMMAND rlock_cli completion ${shell} > "${rlock_cli_files}/rlock.${shell}"
        DEPENDS rlock_cli VERBATIM)
      list(APPEND rlock_cli_outputs "${rlock_cli_files}/rlock.${shell}")
    endforeach()
    add_custom_command(OUTPUT "${rlock_cli_files}/rlock.1"
      COMMAND rlock_cli man > "${rlock_cli_files}/rlock.1"
      DEPENDS rlock_cli VERBATIM)
    list(APPEND rlock_cli_outputs "${rlock_cli_files}/rlock.1")
    add_custom_target(rlock_cli_documents ALL DEPENDS ${rlock_cli_outputs})
    install(FILES "${rlock_cli_files}/rlock.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT cli)
    install(FILES "${rlock_cli_files}/rlock.bash" RENAME rlock
      DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" COMPONENT cli)
    install(FILES "${rlock_cli_files}/rlock.zsh" RENAME _rlock
      DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions" COMPONENT cli)
    install(FILES "${rlock_cli_files}/rlock.fish"
      DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d" COMPONENT cli)
  endif()
endif()
