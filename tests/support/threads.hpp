// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/unique_function.hpp>

#include <future>
#include <string>
#include <utility>

namespace rlock::test {

/// Runs a function on a thread of its own, which is gone when the future has been read. The code
/// that std::async() makes of each type of callable is large, so there is one type for each result.
template <class R>
[[nodiscard]] std::future<R> startThread(rlock::detail::UniqueFunction<R()> function) {
  return std::async(std::launch::async, std::move(function));
}

// The results that most tests ask for are compiled once, in threads.cpp.
extern template std::future<void> startThread(rlock::detail::UniqueFunction<void()> function);
extern template std::future<bool> startThread(rlock::detail::UniqueFunction<bool()> function);
extern template std::future<std::string> startThread(
    rlock::detail::UniqueFunction<std::string()> function);

}  // namespace rlock::test
