// SPDX-License-Identifier: Apache-2.0
#include <rlock/asio.hpp>

#define RLOCK_TEST_ASIO_SUITE StandaloneAsio
#if __has_include(<asio/experimental/awaitable_operators.hpp>)
#include <asio/experimental/awaitable_operators.hpp>
#include <asio/experimental/deferred.hpp>
#define RLOCK_TEST_ASIO_SLOTS
#endif
#include <asio.hpp>

namespace rlock::test {
namespace {
namespace net = ::asio;

template <class T, class... Token>
decltype(auto) use(Operation<T> operation, Token&&... token) {
  return useAsio(std::move(operation), std::forward<Token>(token)...);
}
}  // namespace
}  // namespace rlock::test

#include "integration/asio_cases.hpp"
