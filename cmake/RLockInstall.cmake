# SPDX-License-Identifier: Apache-2.0
# Install and export rules: headers, library, CMake package, pkg-config file.
include(CMakePackageConfigHelpers)

install(TARGETS rlock EXPORT rlockTargets
  RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT runtime
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime NAMELINK_COMPONENT dev
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT dev
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT dev
  FILE_SET asio_headers DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT dev)

install(EXPORT rlockTargets
  NAMESPACE rlock::
  DESTINATION "${RLOCK_CMAKE_DIR}"
  COMPONENT dev)

set(RLOCK_CONFIG_TESTING OFF)
if(RLOCK_WITH_TESTING)
  set(RLOCK_CONFIG_TESTING ON)
  install(TARGETS rlock_testing EXPORT rlockTestingTargets
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT dev
    FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT dev)
  install(EXPORT rlockTestingTargets
    NAMESPACE rlock::
    DESTINATION "${RLOCK_CMAKE_DIR}"
    COMPONENT dev)
  install(FILES "${RLOCK_GENERATED_DIR}/include/rlock/testing_src.hpp"
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/rlock"
    COMPONENT dev)
endif()

get_target_property(rlock_type rlock TYPE)
if(rlock_type STREQUAL "STATIC_LIBRARY")
  set(RLOCK_CONFIG_STATIC ON)
  set(RLOCK_PC_CFLAGS " -DRLOCK_STATIC_DEFINE")
else()
  set(RLOCK_CONFIG_STATIC OFF)
  set(RLOCK_PC_CFLAGS "")
endif()
if(RLOCK_WITH_TLS)
  set(RLOCK_CONFIG_TLS ON)
  set(RLOCK_CONFIG_TLS_LIBRARIES ";OpenSSL::SSL;OpenSSL::Crypto")
  set(RLOCK_PC_TLS ", openssl >= 3.0")
else()
  set(RLOCK_CONFIG_TLS OFF)
  set(RLOCK_CONFIG_TLS_LIBRARIES "")
  set(RLOCK_PC_TLS "")
endif()

install(FILES "${RLOCK_GENERATED_DIR}/include/rlock/src.hpp"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/rlock"
  COMPONENT dev)

# For the resources that fenced locks protect.
install(FILES lua/fenced_write.lua
  DESTINATION "${CMAKE_INSTALL_DATADIR}/rlock"
  COMPONENT dev)

install(FILES LICENSE
  DESTINATION "${CMAKE_INSTALL_DOCDIR}"
  COMPONENT runtime)

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/rlockConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/rlockConfig.cmake"
  INSTALL_DESTINATION "${RLOCK_CMAKE_DIR}"
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR)
# While the major version is 0 a minor version may change the interface.
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/rlockConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/rlockConfig.cmake"
  "${PROJECT_BINARY_DIR}/rlockConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindRLockHiredis.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindRLockLibuv.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindRLockLua.cmake"
  DESTINATION "${RLOCK_CMAKE_DIR}"
  COMPONENT dev)

# The .pc file finds its prefix from its own place, so an installation can be moved, unless its place
# has nothing to do with the prefix.
if(IS_ABSOLUTE "${RLOCK_PKGCONFIG_DIR}")
  set(RLOCK_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
else()
  cmake_path(SET rlock_pc_dir NORMALIZE "/prefix/${RLOCK_PKGCONFIG_DIR}")
  file(RELATIVE_PATH RLOCK_PC_PREFIX "${rlock_pc_dir}" "/prefix")
  string(PREPEND RLOCK_PC_PREFIX "\${pcfiledir}/")
endif()
foreach(dir IN ITEMS LIBDIR INCLUDEDIR)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${dir}}")
    set(RLOCK_PC_${dir} "${CMAKE_INSTALL_${dir}}")
  else()
    set(RLOCK_PC_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  endif()
endforeach()
configure_file(
  "${PROJECT_SOURCE_DIR}/cmake/rlock.pc.in"
  "${PROJECT_BINARY_DIR}/rlock.pc"
  @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/rlock.pc"
  DESTINATION "${RLOCK_PKGCONFIG_DIR}"
  COMPONENT dev)
