# SPDX-License-Identifier: Apache-2.0
# Checks the architecture of a source tree: who includes whom, what stays out of pure code, which words a
# layer may use, that the atomics that order threads can be disturbed, and that no thread is detached late.
#
# Usage: cmake -DROOT=<source tree> -P check.cmake
#
# Prints every violation, then fails if there was one.

cmake_minimum_required(VERSION 3.25)

include("${CMAKE_CURRENT_LIST_DIR}/source_tree.cmake")

# ----------------------------------------------------------------------------------- the C libraries
# Their names stay out of include/, comments included, and their headers out of all but src/net/.

files_of(headers include/*)
foreach(file IN LISTS headers)
  file(READ "${ROOT}/${file}" text)
  if(text MATCHES "uv\\.h|hiredis|openssl")
    violation("${file}" "names ${CMAKE_MATCH_0}")
  endif()
endforeach()

# Somebody sets the time of day: no wait, lease or renewal may follow it. The server asks its own.
files_of(timed_files include/* src/*)
list(FILTER timed_files EXCLUDE REGEX "^src/(cli|testing)/")
foreach(file IN LISTS timed_files)
  read_code("${file}" code)
  if(code MATCHES "(system_clock|CLOCK_REALTIME|gettimeofday|std::time\\()")
    violation("${file}" "asks for the time of day: ${CMAKE_MATCH_1}")
  endif()
endforeach()

# Pure code can be simulated: it knows no descriptor, thread or clock of the system. A mutex is allowed:
# it decides nothing.
files_of(pure_headers include/rlock/detail/*)
foreach(file IN LISTS pure_headers)
  read_code("${file}" code)
  if(code MATCHES "#[ \t]*include[ \t]*<((sys/|linux/)[a-z_]+\\.h|unistd\\.h|pthread\\.h|netdb\\.h|thread)>")
    violation("${file}" "touches the world: ${CMAKE_MATCH_1}")
  endif()
  if(code MATCHES "(steady_clock::now|Clock::now|std::this_thread)")
    violation("${file}" "touches the world: ${CMAKE_MATCH_1}")
  endif()
  # A thread that blocks in pure code cannot be simulated. The one that may is the thread that destroys a
  # context of Asio; the comment there says why.
  if(NOT file STREQUAL "include/rlock/detail/objects/context_calls.hpp" AND
     code MATCHES "(condition_variable|counting_semaphore|binary_semaphore|std::latch|std::barrier)")
    violation("${file}" "blocks a thread: ${CMAKE_MATCH_1}")
  endif()
endforeach()

files_of(sources src/*.hpp src/*.cpp)
foreach(file IN LISTS sources)
  if(file MATCHES "^src/net/")
    continue()
  endif()
  read_code("${file}" code)
  if(code MATCHES "#[ \t]*include[ \t]*[<\"](uv\\.h|uv/|hiredis|openssl)[^\n]*")
    violation("${file}" "includes a C library outside src/net: ${CMAKE_MATCH_0}")
  endif()
  if(NOT file MATCHES "^src/testing/" AND code MATCHES "#[ \t]*include[ \t]*[<\"]lua[^\n]*")
    violation("${file}" "includes Lua outside src/testing: ${CMAKE_MATCH_0}")
  endif()
endforeach()

# -------------------------------------------------------------------------------------------- layers

# A folder of src/ and of include/rlock/detail/ is a layer. The headers in include/rlock/ are the public
# objects, but for these, which every layer may use.
set(base_headers back_off capabilities error histogram inspection observer result duration owner log options version stats sync_policy
    export)

set(layers cli testing objects group engine executor net base)
function(layer_of path out)
  set(layer "")
  string(REGEX REPLACE "^(include/rlock/|rlock/|src/)(detail/)?" "" inner "${path}")
  if(inner MATCHES "^([a-z]+)/[^/]+$")
    if(CMAKE_MATCH_1 IN_LIST layers)
      set(layer ${CMAKE_MATCH_1})
    endif()
  elseif(path MATCHES "^(include/)?rlock/([a-z0-9_]+)\\.hpp$")
    set(layer objects)
    if(CMAKE_MATCH_2 IN_LIST base_headers)
      set(layer base)
    elseif(CMAKE_MATCH_2 STREQUAL "testing")
      set(layer testing)
    endif()
  endif()
  set(${out} "${layer}" PARENT_SCOPE)
endfunction()

# Each includes itself, the layers below it, and base.
# The program is a user of the library like any other.
set(may_include_cli cli objects base)
# The test double stands on the way in which every client is made, and on the connections' half that needs no
# socket; nothing of the library includes it.
set(may_include_testing testing objects executor net base)
set(may_include_objects objects group engine executor net base)
set(may_include_group group engine executor net base)
set(may_include_engine engine executor net base)
set(may_include_executor executor net base)
set(may_include_net net base)
set(may_include_base base)

foreach(file IN LISTS headers sources)
  layer_of("${file}" layer)
  if(NOT layer)
    violation("${file}" "is in no layer: a folder of src/ or include/rlock/detail/")
    continue()
  endif()
  read_code("${file}" code)
  string(REGEX MATCHALL "#[ \t]*include[ \t]*(\"[^\"\n]*\"|<rlock/[^>\n]*>)" includes "${code}")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "^[^\"<]*[\"<]([^\">]*)[\">]$" "\\1" included "${include}")
    if(file MATCHES "^include/" AND include MATCHES "\"")
      violation("${file}" "an installed header cannot include \"${included}\"")
      continue()
    endif()
    if(include MATCHES "\"" AND NOT EXISTS "${ROOT}/src/${included}")
      violation("${file}" "\"${included}\" is not a path inside src/")
      continue()
    endif()
    layer_of("${included}" other)
    if(layer STREQUAL "cli" AND NOT included MATCHES "^(rlock/[a-z0-9_]+\\.hpp|cli/.*)$")
      violation("${file}" "the program includes ${included}, which is not public")
      continue()
    endif()
    if(file MATCHES "^include/rlock/[a-z0-9_]+\\.hpp$" AND NOT other MATCHES "^(objects|base)$")
      violation("${file}" "a public header includes ${included} of layer ${other}")
      continue()
    endif()
    if(NOT other IN_LIST may_include_${layer})
      violation("${file}" "layer ${layer} includes ${included} of layer ${other}")
    endif()
  endforeach()
endforeach()

# --------------------------------------------------------------------------------------------- words
# The engine's state machines know locks and no Redis; the connections know Redis and no locks.

set(redis_words
  redis evalsha subscribe unsubscribe ssubscribe psubscribe publish hget hset hexists hincrby pexpire
  pttl noscript)
files_of(engine_headers include/rlock/detail/engine/*.hpp)
foreach(file IN LISTS engine_headers)
  read_code("${file}" code)
  # `subscribe` is also what the engine asks of its pub/sub port; the command is written in capitals.
  if(code MATCHES "([A-Za-z_]*[Rr][Ee][Dd][Ii][Ss][A-Za-z_]*)")
    violation("${file}" "the engine names Redis: ${CMAKE_MATCH_1}")
  endif()
  foreach(word IN LISTS redis_words)
    string(TOUPPER "${word}" command)
    if(code MATCHES "(^|[^A-Za-z_])(${command})([^A-Za-z_]|$)")
      violation("${file}" "the engine names a Redis command: ${command}")
    endif()
    if(NOT word MATCHES "subscribe|publish|redis"
       AND code MATCHES "(^|[^A-Za-z_])\"?(${word})\"?([^A-Za-z_]|$)")
      violation("${file}" "the engine names a Redis command: ${word}")
    endif()
  endforeach()
endforeach()

files_of(net_files src/net/*.hpp src/net/*.cpp)
foreach(file IN LISTS net_files)
  read_code("${file}" code)
  # Words inside identifiers: lease, leaseTime, newLease, but not release.
  foreach(word IN ITEMS lease watchdog holder "lock_?name" "rlock_?object" fencing)
    string(SUBSTRING "${word}" 0 1 first)
    string(SUBSTRING "${word}" 1 -1 rest)
    string(TOUPPER "${first}" capital)
    string(REPLACE "_?n" "(_n|N|n)" rest "${rest}")
    string(REPLACE "_?o" "(_o|O|o)" rest "${rest}")
    if(code MATCHES "((^|[^A-Za-z])${first}|${capital})${rest}s?([^a-z]|$)")
      string(STRIP "${CMAKE_MATCH_0}" match)
      violation("${file}" "the connection layer names something of a lock: ${match}")
    endif()
  endforeach()
endforeach()

# -------------------------------------------------------------------------------------------- atomics
# An atomic that orders threads is an Atomic, so that tests/races gives way before each use of it.
# These count, or are of the process and its loop threads, which the races do not share.

set(counting_files
  include/rlock/detail/engine/engine_context.hpp
  include/rlock/detail/engine/lock_engine.hpp
  include/rlock/detail/engine/outage_log.hpp
  include/rlock/detail/engine/telemetry.hpp
  include/rlock/detail/executor/script_supply.hpp
  src/net/command_link.hpp
  src/net/loop_thread.cpp
  src/net/loop_thread.hpp
  src/net/socket.cpp)
files_of(ordering_files
  include/rlock/detail/engine/*.hpp include/rlock/detail/group/*.hpp
  include/rlock/detail/executor/*.hpp include/rlock/detail/net/*.hpp
  src/net/*.hpp src/net/*.cpp)
list(REMOVE_ITEM ordering_files ${counting_files})
foreach(file IN LISTS ordering_files)
  read_code("${file}" code)
  # The word of an Atomic, for a futex.
  string(REGEX REPLACE "const std::atomic<std::uint32_t>[&*]" "" code "${code}")
  if(code MATCHES "std::atomic[^a-z_]")
    violation("${file}" "uses std::atomic instead of Atomic")
  endif()
endforeach()

# -------------------------------------------------------------------------------- threads of their own
# One that has begun and may end at any moment is not detached: see src/base/detached_thread.hpp.

files_of(thread_files include/* src/*)
foreach(file IN LISTS thread_files)
  read_code("${file}" code)
  if(code MATCHES "[})][ \t\n]*\\.detach\\(\\)")
    violation("${file}" "detaches a thread that may end meanwhile; startDetached() does not")
  endif()
endforeach()

judge(check.cmake)
