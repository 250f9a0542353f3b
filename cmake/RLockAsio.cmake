# SPDX-License-Identifier: Apache-2.0
# Where the tests, examples and documents find Asio and Boost.Asio, which are headers only. The library needs
# neither: its own headers on them are installed in any case.

set(RLOCK_WITH_ASIO AUTO CACHE STRING
  "Tests and examples on Asio and Boost.Asio: AUTO (what is found), ON (both) or OFF")
set_property(CACHE RLOCK_WITH_ASIO PROPERTY STRINGS AUTO ON OFF)

if(NOT RLOCK_WITH_ASIO)
  set(RLOCK_ASIO_INCLUDE_DIR "")
  set(RLOCK_BOOST_ASIO_INCLUDE_DIR "")
  return()
endif()
if(RLOCK_WITH_ASIO STREQUAL "AUTO")
  set(required "")
else()
  set(required REQUIRED)
endif()
find_path(RLOCK_ASIO_INCLUDE_DIR asio/use_awaitable.hpp ${required})
find_path(RLOCK_BOOST_ASIO_INCLUDE_DIR boost/asio/use_awaitable.hpp ${required})
mark_as_advanced(RLOCK_ASIO_INCLUDE_DIR RLOCK_BOOST_ASIO_INCLUDE_DIR)

add_library(rlock_asio INTERFACE)
target_link_libraries(rlock_asio INTERFACE Threads::Threads)
foreach(directory IN ITEMS "${RLOCK_ASIO_INCLUDE_DIR}" "${RLOCK_BOOST_ASIO_INCLUDE_DIR}")
  if(directory)
    target_include_directories(rlock_asio SYSTEM INTERFACE "${directory}")
  endif()
endforeach()
