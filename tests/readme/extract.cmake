# SPDX-License-Identifier: Apache-2.0
# Writes the C++ blocks of Markdown documents as source files.
#
# Usage: cmake -DDOCUMENTS=<file.md;...> -DOUTPUT_DIR=<directory> -P extract.cmake
#
# A block with a main() becomes program_<n>.cpp; those with a TEST() together are tests.cpp. All others become functions of fragments.cpp that have
# an `rlock::Client& client`; their #include lines go to its top, and a block with co_await becomes a
# coroutine. #line makes the compiler name the place in the document. The first program of the first
# document is the one a reader sees first: it may have 15 lines at most.

cmake_minimum_required(VERSION 3.25)

set(fence "```")
set(longest_first_program 15)

set(includes "")
set(fragments "")
set(fragment_count 0)
set(program_count 0)
set(tests "")

function(write_if_different file text)
  file(WRITE "${file}.new" "${text}")
  file(COPY_FILE "${file}.new" "${file}" ONLY_IF_DIFFERENT)
  file(REMOVE "${file}.new")
endfunction()

# A variable, not a list: brackets and semicolons in the code would be taken for list syntax.
function(count_lines text out)
  string(REGEX REPLACE "[^\n]" "" newlines "${text}")
  string(LENGTH "${newlines}" count)
  set(${out} ${count} PARENT_SCOPE)
endfunction()

function(add_block document line code)
  if(code MATCHES "(^|\n)int main\\(")
    math(EXPR number "${program_count} + 1")
    count_lines("${code}" lines)
    if(number EQUAL 1 AND lines GREATER longest_first_program)
      message(FATAL_ERROR "${document}:${line}: the first program has ${lines} lines, "
        "allowed are ${longest_first_program}")
    endif()
    write_if_different("${OUTPUT_DIR}/program_${number}.cpp" "#line ${line} \"${document}\"\n${code}")
    set(program_count ${number} PARENT_SCOPE)
    return()
  endif()
  if(code MATCHES "(^|\n)TEST\\(")
    set(tests "${tests}#line ${line} \"${document}\"\n${code}" PARENT_SCOPE)
    return()
  endif()
  string(REGEX MATCHALL "#include <[^>\n]*>\n" block_includes "${code}")
  list(JOIN block_includes "" block_includes)
  # An empty line stays, so that the numbers of the others are right.
  string(REGEX REPLACE "#include <[^>\n]*>\n" "\n" code "${code}")
  set(result void)
  if(code MATCHES "co_await")
    set(result Coroutine)
  endif()
  math(EXPR number "${fragment_count} + 1")
  set(fragment_count ${number} PARENT_SCOPE)
  set(includes "${includes}${block_includes}" PARENT_SCOPE)
  set(fragments "${fragments}
${result} fragment${number}([[maybe_unused]] rlock::Client& client) {
#line ${line} \"${document}\"
${code}}
" PARENT_SCOPE)
endfunction()

file(MAKE_DIRECTORY "${OUTPUT_DIR}")
foreach(document IN LISTS DOCUMENTS)
  file(READ "${document}" text)
  set(line 1)
  while(TRUE)
    string(FIND "${text}" "\n${fence}cpp\n" start)
    if(start EQUAL -1)
      break()
    endif()
    math(EXPR start "${start} + 8")
    string(SUBSTRING "${text}" 0 ${start} before)
    count_lines("${before}" lines)
    math(EXPR line "${line} + ${lines}")
    string(SUBSTRING "${text}" ${start} -1 text)
    string(FIND "${text}" "${fence}" end)
    if(end EQUAL -1)
      message(FATAL_ERROR "${document}:${line}: the block has no end")
    endif()
    string(SUBSTRING "${text}" 0 ${end} code)
    string(SUBSTRING "${text}" ${end} -1 text)
    add_block("${document}" ${line} "${code}")
    count_lines("${code}" lines)
    math(EXPR line "${line} + ${lines}")
  endwhile()
endforeach()
if(program_count EQUAL 0)
  message(FATAL_ERROR "no document has a program")
endif()

if(tests)
  write_if_different("${OUTPUT_DIR}/tests.cpp" "${tests}")
else()
  file(REMOVE "${OUTPUT_DIR}/tests.cpp")
endif()

# Removes the programs that an earlier run wrote and this one did not.
file(GLOB programs RELATIVE "${OUTPUT_DIR}" "${OUTPUT_DIR}/program_*.cpp")
foreach(program IN LISTS programs)
  string(REGEX REPLACE "[^0-9]" "" number "${program}")
  if(number GREATER program_count)
    file(REMOVE "${OUTPUT_DIR}/${program}")
  endif()
endforeach()

write_if_different("${OUTPUT_DIR}/fragments.cpp" "${includes}#include <rlock/rlock.hpp>

#include <chrono>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <future>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

struct Coroutine {
  struct promise_type {
    Coroutine get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

// What the documents leave to the reader.
inline void work() {}
inline void stopWorking() {}
inline void rollBack() {}
inline void stopJob(std::string_view) {}
inline void setReady(bool) {}
inline std::string latestToken() { return {}; }
inline std::string latestSentinelToken() { return {}; }
struct Storage {
  void write(int, std::uint64_t) {}
};
inline Storage storage;
inline int row = 0;
${fragments}
int main() {}
")
