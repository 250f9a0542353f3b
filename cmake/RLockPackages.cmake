# SPDX-License-Identifier: Apache-2.0
# Debian packages by CPack, one for each install component, of a build with a shared library:
#
#   librlock<SOVERSION>   the library            (component runtime)
#   librlock-dev          headers, CMake package (component dev)
#   rlock                 the program            (component cli)
#
# The name of the first carries the whole SONAME, so that two versions can be installed side by side.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME rlock)
set(CPACK_PACKAGE_VENDOR "rlock")
set(CPACK_PACKAGE_CONTACT "the developers of rlock")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY "${PROJECT_BINARY_DIR}/packages")
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL runtime dev)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# The program is linked to a library that is not installed yet when its dependencies are looked up.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}")
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")

get_target_property(rlock_soversion rlock SOVERSION)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME "librlock${rlock_soversion}")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "${PROJECT_DESCRIPTION}: the library")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME librlock-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_DEV_DEPENDS runtime)
set(CPACK_COMPONENT_DEV_DESCRIPTION "${PROJECT_DESCRIPTION}: headers and CMake package")
# <rlock/src.hpp> is compiled with these; the library itself needs only what the linker finds.
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libhiredis-dev, libuv1-dev, libfmt-dev")
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS liblua5.1-0-dev)
if(RLOCK_WITH_TLS)
  string(APPEND CPACK_DEBIAN_DEV_PACKAGE_DEPENDS ", libssl-dev")
endif()

if(TARGET rlock_cli)
  list(APPEND CPACK_COMPONENTS_ALL cli)
  set(CPACK_DEBIAN_CLI_PACKAGE_NAME rlock)
  set(CPACK_DEBIAN_CLI_PACKAGE_SECTION utils)
  set(CPACK_COMPONENT_CLI_DEPENDS runtime)
  set(CPACK_COMPONENT_CLI_DESCRIPTION "Run commands under distributed locks on Redis")
endif()

include(CPack)
