# SPDX-License-Identifier: Apache-2.0
# The component rlock::prometheus: one header on prometheus-cpp, if that is there.

set(RLOCK_WITH_PROMETHEUS AUTO CACHE STRING
  "The component rlock::prometheus, which needs prometheus-cpp: AUTO (if it is found), ON or OFF")
set_property(CACHE RLOCK_WITH_PROMETHEUS PROPERTY STRINGS AUTO ON OFF)

if(RLOCK_WITH_PROMETHEUS STREQUAL "AUTO")
  find_package(prometheus-cpp CONFIG QUIET)
elseif(RLOCK_WITH_PROMETHEUS)
  find_package(prometheus-cpp CONFIG REQUIRED)
endif()
if(NOT RLOCK_WITH_PROMETHEUS OR NOT prometheus-cpp_FOUND)
  return()
endif()

add_library(rlock_prometheus INTERFACE)
add_library(rlock::prometheus ALIAS rlock_prometheus)
set_target_properties(rlock_prometheus PROPERTIES EXPORT_NAME prometheus)
target_sources(rlock_prometheus INTERFACE
  FILE_SET HEADERS BASE_DIRS include FILES ${RLOCK_PROMETHEUS_HEADERS})
target_link_libraries(rlock_prometheus INTERFACE rlock prometheus-cpp::core)

if(RLOCK_INSTALL)
  install(TARGETS rlock_prometheus EXPORT rlockPrometheusTargets
    FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT dev)
  install(EXPORT rlockPrometheusTargets
    NAMESPACE rlock::
    DESTINATION "${RLOCK_CMAKE_DIR}"
    COMPONENT dev)
endif()
