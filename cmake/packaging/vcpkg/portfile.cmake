# SPDX-License-Identifier: Apache-2.0
# An overlay port of the source tree that it stands in: --overlay-ports=<tree>/cmake/packaging

cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH SOURCE_PATH)
cmake_path(GET SOURCE_PATH PARENT_PATH SOURCE_PATH)
cmake_path(GET SOURCE_PATH PARENT_PATH SOURCE_PATH)

vcpkg_check_features(OUT_FEATURE_OPTIONS FEATURE_OPTIONS
  FEATURES
    tls RLOCK_WITH_TLS)

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    ${FEATURE_OPTIONS}
    -DRLOCK_BUILD_TESTS=OFF
    -DRLOCK_BUILD_EXAMPLES=OFF
    -DRLOCK_BUILD_CLI=OFF
    -DRLOCK_WITH_TESTING=OFF
    -DRLOCK_WITH_PROMETHEUS=OFF
    -DRLOCK_PRECOMPILED_HEADERS=OFF
    -DRLOCK_CMAKE_DIR=share/rlock)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup()
vcpkg_fixup_pkgconfig()

file(REMOVE_RECURSE
  "${CURRENT_PACKAGES_DIR}/debug/include"
  "${CURRENT_PACKAGES_DIR}/debug/share")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
