// SPDX-License-Identifier: Apache-2.0
#include <rlock/boost_asio.hpp>

#define RLOCK_TEST_ASIO_SUITE BoostAsio
#if __has_include(<boost/asio/experimental/awaitable_operators.hpp>)
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/experimental/deferred.hpp>
#define RLOCK_TEST_ASIO_SLOTS
#endif
#include <boost/asio.hpp>

namespace rlock::test {
namespace {
namespace net = ::boost::asio;

template <class T, class... Token>
decltype(auto) use(Operation<T> operation, Token&&... token) {
  return useBoostAsio(std::move(operation), std::forward<Token>(token)...);
}
}  // namespace
}  // namespace rlock::test

#include "integration/asio_cases.hpp"
