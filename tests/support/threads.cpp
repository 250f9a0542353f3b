// SPDX-License-Identifier: Apache-2.0
#include "support/threads.hpp"

namespace rlock::test {

template std::future<void> startThread(rlock::detail::UniqueFunction<void()> function);
template std::future<bool> startThread(rlock::detail::UniqueFunction<bool()> function);
template std::future<std::string> startThread(
    rlock::detail::UniqueFunction<std::string()> function);

}  // namespace rlock::test
