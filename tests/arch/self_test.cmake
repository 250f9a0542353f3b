# SPDX-License-Identifier: Apache-2.0
# Proves that every rule of check.cmake and files.cmake fails on a tree that breaks it and on nothing else.
#
# Usage: cmake -DWORK_DIR=<directory to write to> -P self_test.cmake

cmake_minimum_required(VERSION 3.25)

set(spdx "// SPDX-License-Identifier: Apache-2.0\n")

# A small tree that obeys every rule, and uses what a careless check would take for a violation.
function(write_good_tree root)
  file(REMOVE_RECURSE "${root}")
  file(WRITE "${root}/CMakeLists.txt" "# SPDX-License-Identifier: Apache-2.0
set(FILES
  include/rlock/error.hpp
  include/rlock/lock.hpp
  include/rlock/detail/base/clock.hpp
  include/rlock/detail/engine/acquire.hpp
  include/rlock/detail/executor/command.hpp
  src/objects/client.cpp
  src/cli/main.cpp
  src/base/error.cpp
  src/engine/engine.cpp
  src/executor/single.cpp
  src/net/link.cpp
  lua/lock_acquire.lua)
")
  file(WRITE "${root}/tests/CMakeLists.txt" "# SPDX-License-Identifier: Apache-2.0
set(TESTS unit/a_test.cpp)
")
  file(WRITE "${root}/tests/unit/a_test.cpp" "${spdx}#include \"net/link.hpp\"
// TEST(Old, OLD1_Gone)
TEST(Suite, LK01_XFAIR3_Words) {}
TEST_P(Suite,
       C10_Words) {}
TEST_F(Suite, NoIdAtAll) {}
")
  file(WRITE "${root}/tests/catalogue.md" "`ZZ` is no table.\n\n| Id | |\n|---|---|\n"
    "| `LK`, `XFAIR` | see `YY` |\n| `C10` | ten |\n")
  file(WRITE "${root}/include/rlock/error.hpp" "${spdx}#include <rlock/detail/base/clock.hpp>\n")
  file(WRITE "${root}/include/rlock/lock.hpp"
    "${spdx}#include <rlock/detail/base/clock.hpp>\n#include <rlock/error.hpp>\n")
  file(WRITE "${root}/include/rlock/detail/base/clock.hpp" "${spdx}#include <chrono>\n")
  file(WRITE "${root}/include/rlock/detail/engine/acquire.hpp" "${spdx}
#include <rlock/detail/executor/command.hpp>
/* Redis answers; EVALSHA; hget */
struct Port { void subscribe(); void unsubscribe(); };  // SUBSCRIBE to redis
")
  file(WRITE "${root}/include/rlock/detail/executor/command.hpp" "${spdx}#include <rlock/error.hpp>\n")
  file(WRITE "${root}/src/objects/client.cpp" "${spdx}#include \"net/link.hpp\"\n#include <rlock/lock.hpp>\n")
  file(WRITE "${root}/src/cli/run.hpp" "${spdx}#include <rlock/lock.hpp>\n")
  file(WRITE "${root}/src/cli/main.cpp" "${spdx}#include \"cli/run.hpp\"\n#include <rlock/error.hpp>\n")
  file(WRITE "${root}/src/base/error.cpp" "${spdx}#include <rlock/error.hpp>\n")
  file(WRITE "${root}/src/engine/engine.cpp" "${spdx}#include <rlock/detail/engine/acquire.hpp>\n")
  file(WRITE "${root}/src/executor/single.cpp"
    "${spdx}#include \"net/link.hpp\"\n#include <rlock/detail/executor/command.hpp>\n")
  file(WRITE "${root}/src/group/group.hpp" "${spdx}#include <rlock/detail/engine/acquire.hpp>\n")
  file(WRITE "${root}/src/net/link.hpp" "${spdx}#include <hiredis/hiredis.h>\n#include <uv.h>
void wake(const std::atomic<std::uint32_t>* word);
")
  file(WRITE "${root}/src/net/link.cpp" "${spdx}#include \"net/link.hpp\"
// the holder of a lease
void f() { std::lock_guard lock(mutex_); release(); placeholder = 1; std::scoped_lock guard(a, b); }
")
  file(WRITE "${root}/lua/lock_acquire.lua" "-- SPDX-License-Identifier: Apache-2.0
-- KEYS[1]  the lock
-- ARGV[1]  the lease, ms
-- Returns  nil
-- When it runs twice: the hold is counted twice
-- Cost: O(1)
return nil
")
endfunction()

# One of the scripts on the tree. Expects no violation, or one with the given text.
function(check script expected)
  execute_process(
    COMMAND "${CMAKE_COMMAND}" "-DROOT=${WORK_DIR}/tree" -P "${CMAKE_CURRENT_LIST_DIR}/${script}"
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(expected STREQUAL "")
    if(NOT result EQUAL 0)
      message(SEND_ERROR "${script} was to accept this tree:\n${output}")
    endif()
  elseif(result EQUAL 0)
    message(SEND_ERROR "${script} accepted it, but expected: ${expected}")
  else()
    string(FIND "${output}" "${expected}" position)
    if(position EQUAL -1)
      message(SEND_ERROR "${script}: expected: ${expected}\nfound:\n${output}")
    endif()
    if(NOT output MATCHES "CMake Error[^\n]*\n  1 violations[^\n]*[ \n]+tests/arch/${script}")
      message(SEND_ERROR "${script}: expected one violation (${expected}), found:\n${output}")
    endif()
  endif()
endfunction()

# Writes one bad file over the good tree and expects one violation with the given text, found by the script
# that the tests below are about. The other script has nothing against the tree.
function(expect_violation expected file text)
  write_good_tree("${WORK_DIR}/tree")
  file(WRITE "${WORK_DIR}/tree/${file}" "${text}")
  check(${script} "${file}: ${expected}")
  check(${other} "")
endfunction()

write_good_tree("${WORK_DIR}/tree")
check(check.cmake "")
check(files.cmake "")

set(script check.cmake)
set(other files.cmake)

# C libraries
expect_violation("names uv.h" include/rlock/lock.hpp "${spdx}#include <uv.h>\n")
expect_violation("names hiredis" include/rlock/lock.hpp "${spdx}// hiredis formats\n")
expect_violation("names openssl" include/rlock/detail/base/clock.hpp "${spdx}#include <openssl/ssl.h>\n")
expect_violation("includes a C library" src/objects/client.cpp "${spdx}#include <uv.h>\n")
expect_violation("includes a C library" src/executor/single.cpp
  "${spdx}#include <hiredis/hiredis.h>\n")
expect_violation("includes a C library" src/engine/engine.cpp "${spdx}# include <openssl/ssl.h>\n")

# The time of day
expect_violation("asks for the time of day: system_clock" src/objects/client.cpp
  "${spdx}auto now = std::chrono::system_clock::now();\n")
expect_violation("asks for the time of day: CLOCK_REALTIME" include/rlock/lock.hpp
  "${spdx}int clock = CLOCK_REALTIME;\n")

# Pure headers
expect_violation("touches the world: sys/socket.h" include/rlock/detail/base/clock.hpp
  "${spdx}#include <sys/socket.h>\n")
expect_violation("touches the world: thread" include/rlock/detail/engine/acquire.hpp
  "${spdx}#include <thread>\n")
expect_violation("touches the world: steady_clock::now" include/rlock/detail/engine/acquire.hpp
  "${spdx}auto now = std::chrono::steady_clock::now();\n")
expect_violation("asks for the time of day: system_clock" include/rlock/detail/base/clock.hpp
  "${spdx}auto now = std::chrono::system_clock::now();\n")
expect_violation("touches the world: std::this_thread" include/rlock/detail/engine/acquire.hpp
  "${spdx}void f() { std::this_thread::yield(); }\n")
foreach(what IN ITEMS condition_variable counting_semaphore std::latch)
  expect_violation("blocks a thread: ${what}" include/rlock/detail/engine/acquire.hpp
    "${spdx}using T = ${what};\n")
endforeach()

# Layers
expect_violation("is in no layer" src/loose.hpp "${spdx}")
expect_violation("is in no layer" src/engines/loose.hpp "${spdx}")
expect_violation("layer engine includes group/group.hpp of layer group"
  src/engine/engine.cpp "${spdx}#include \"group/group.hpp\"\n")
expect_violation("a public header includes rlock/detail/executor/command.hpp of layer executor"
  include/rlock/lock.hpp "${spdx}#include <rlock/detail/executor/command.hpp>\n")
expect_violation("the program includes rlock/detail/base/clock.hpp, which is not public" src/cli/main.cpp
  "${spdx}#include <rlock/detail/base/clock.hpp>\n")
expect_violation("the program includes net/link.hpp, which is not public" src/cli/main.cpp
  "${spdx}#include \"net/link.hpp\"\n")
expect_violation("layer objects includes cli/run.hpp of layer cli" src/objects/client.cpp
  "${spdx}#include \"cli/run.hpp\"\n")
expect_violation("layer base includes rlock/lock.hpp of layer objects"
  include/rlock/error.hpp "${spdx}#include <rlock/lock.hpp>\n")
expect_violation("layer base includes rlock/detail/engine/acquire.hpp of layer engine"
  include/rlock/detail/base/clock.hpp "${spdx}#include <rlock/detail/engine/acquire.hpp>\n")
expect_violation("layer base includes net/link.hpp of layer net"
  src/base/error.cpp "${spdx}#include \"net/link.hpp\"\n")
expect_violation("layer engine includes rlock/lock.hpp of layer objects"
  include/rlock/detail/engine/acquire.hpp "${spdx}#include <rlock/lock.hpp>\n")
expect_violation("layer net includes rlock/detail/engine/acquire.hpp of layer engine"
  src/net/link.cpp "${spdx}#include <rlock/detail/engine/acquire.hpp>\n")
expect_violation("layer executor includes rlock/detail/engine/acquire.hpp of layer engine"
  src/executor/single.cpp "${spdx}#include <rlock/detail/engine/acquire.hpp>\n")
expect_violation("layer net includes rlock/detail/executor/command.hpp of layer executor"
  src/net/link.hpp "${spdx}#include <rlock/detail/executor/command.hpp>\n")
expect_violation("an installed header cannot include \"net/link.hpp\""
  include/rlock/detail/executor/command.hpp "${spdx}#include \"net/link.hpp\"\n")
expect_violation("\"link.hpp\" is not a path inside src/"
  src/net/link.cpp "${spdx}#include \"link.hpp\"\n")

# Words
expect_violation("the engine names Redis: redisNode" include/rlock/detail/engine/acquire.hpp
  "${spdx}int redisNode;\n")
expect_violation("uses std::atomic instead of Atomic" include/rlock/detail/engine/acquire.hpp
  "${spdx}std::atomic<bool> done{false};\n")
foreach(file IN ITEMS include/rlock/detail/executor/command.hpp src/net/link.hpp src/net/link.cpp)
  expect_violation("uses std::atomic instead of Atomic" ${file}
    "${spdx}void sleep(const std::atomic<std::uint32_t>& word); std::atomic<bool> up{false};\n")
endforeach()
expect_violation("the engine names a Redis command: EVALSHA"
  include/rlock/detail/engine/acquire.hpp "${spdx}auto c = \"EVALSHA\";\n")
expect_violation("the engine names a Redis command: SUBSCRIBE"
  include/rlock/detail/engine/acquire.hpp "${spdx}auto c = \"SUBSCRIBE\";\n")
expect_violation("the engine names a Redis command: hget"
  include/rlock/detail/engine/acquire.hpp "${spdx}auto c = \"hget\";\n")
foreach(identifier IN ITEMS lease leaseTime newLease watchdog_ lockName lock_name currentHolder
    holders_ fencingToken)
  expect_violation("the connection layer names something of a lock" src/net/link.cpp
    "${spdx}int ${identifier};\n")
endforeach()

# Threads
foreach(end IN ITEMS "})" ")")
  expect_violation("detaches a thread that may end meanwhile" src/net/link.cpp
    "${spdx}void f() { std::thread([] { work(); ${end}.detach(); }\n")
endforeach()

set(script files.cmake)
set(other check.cmake)

# Licence
expect_violation("has no SPDX" src/net/link.cpp "int x;\n")
expect_violation("has no SPDX" cmake/x.cmake "# nothing\n")
expect_violation("has no SPDX" tests/run.sh "#!/bin/sh\n")

# Lua headers
set(lua "-- SPDX-License-Identifier: Apache-2.0\n")
expect_violation("its opening comment does not say: KEYS" lua/lock_acquire.lua
  "${lua}-- ARGV\n-- Returns\n-- When it runs twice\n-- Cost\n")
expect_violation("its opening comment does not say: ARGV" lua/lock_acquire.lua
  "${lua}-- KEYS\n-- Returns\n-- When it runs twice\n-- Cost\nlocal a = ARGV\n")
expect_violation("its opening comment does not say: Returns" lua/lock_acquire.lua
  "${lua}-- KEYS\n-- ARGV\n-- When it runs twice\n-- Cost\n")
expect_violation("its opening comment does not say: When it runs twice" lua/lock_acquire.lua
  "${lua}-- KEYS\n-- ARGV\n-- Returns\n-- Cost\n\n-- When it runs twice\n")
expect_violation("its opening comment does not say: Cost" lua/lock_acquire.lua
  "${lua}-- KEYS\n-- ARGV\n-- Returns\n-- When it runs twice\n")

# Ids of tests
foreach(name IN ITEMS ZZ1_Words LK01_YY2_Words C1_Words)
  string(REGEX MATCH "ZZ1|YY2|C1" id "${name}")
  expect_violation("tests/catalogue.md does not explain ${id}" tests/unit/a_test.cpp
    "${spdx}TEST_F(Suite,\n       ${name}) {}\n")
endforeach()

# Lists of files
expect_violation("is not listed in CMakeLists.txt" src/net/new.cpp "${spdx}")
expect_violation("is not listed in CMakeLists.txt" include/rlock/new.hpp "${spdx}")
expect_violation("is not listed in CMakeLists.txt" lua/new.lua
  "${lua}-- KEYS\n-- ARGV\n-- Returns\n-- When it runs twice\n-- Cost\n")
expect_violation("is not listed in tests/CMakeLists.txt" tests/unit/new_test.cpp "${spdx}")
