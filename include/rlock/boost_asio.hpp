// SPDX-License-Identifier: Apache-2.0
#pragma once

// rlock's operations as asynchronous operations of Boost.Asio, `<boost/asio.hpp>`. The same for
// standalone Asio is <rlock/asio.hpp>; a program may use both. Not part of <rlock/rlock.hpp>.

#include <rlock/detail/objects/context_calls.hpp>
#include <rlock/operation.hpp>

#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/execution.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/use_awaitable.hpp>
#if __has_include(<boost/asio/associated_cancellation_slot.hpp>)
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/cancellation_type.hpp>
#define RLOCK_DETAIL_ASIO_SLOTS
#endif

#include <concepts>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

/// @cond
namespace rlock::detail::boost_asio {
namespace net = ::boost::asio;
#include <rlock/detail/objects/asio_call.hpp>
#if defined(BOOST_ASIO_HAS_CO_AWAIT)
using DefaultToken = net::use_awaitable_t<>;
#else
struct DefaultToken;  // a token has to be given
#endif
}  // namespace rlock::detail::boost_asio
#undef RLOCK_DETAIL_ASIO_SLOTS
/// @endcond

namespace rlock {

/// Starts an operation as an asynchronous operation of Boost.Asio; in all else as useAsio() of
/// `<rlock/asio.hpp>`. Inside a `boost::asio::awaitable`:
///
///     rlock::Lease lease = co_await rlock::useBoostAsio(lock.acquireAsync());
///
/// **Thread safety:** as useAsio()
///
/// Where the executor has no memory for the handler, the handler is destroyed without being called,
/// and what a call had obtained is given back: a hold, that of a lockAsync() included, and permits.
/// Permits that were drained are not.
///
/// @param operation  counts as started; one that was started before fails with `invalidArgument`. A
///                   ThreadOperation does not compile
/// @param token      any completion token of Boost.Asio's
/// @throws std::bad_alloc  and what the executor throws, as any initiating function
template <class T, class Token = detail::boost_asio::DefaultToken>
decltype(auto) useBoostAsio(Operation<T> operation, Token&& token = Token()) {
  return detail::boost_asio::initiate<T, Token>(std::move(operation), token);
}

/// @cond
template <class T, class Token = detail::boost_asio::DefaultToken>
void useBoostAsio(ThreadOperation<T> /*operation*/, Token&& /*token*/ = Token()) {
  detail::requireOwner<Token>();
}
/// @endcond

}  // namespace rlock
