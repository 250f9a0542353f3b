// SPDX-License-Identifier: Apache-2.0
#pragma once

// rlock's operations as asynchronous operations of standalone Asio, `<asio.hpp>`. The same for
// Boost.Asio is <rlock/boost_asio.hpp>; a program may use both. Not part of <rlock/rlock.hpp>.

#if !__has_include(<asio/version.hpp>)
#error "standalone Asio was not found; for Boost.Asio include <rlock/boost_asio.hpp>"
#endif

#include <rlock/detail/objects/context_calls.hpp>
#include <rlock/operation.hpp>

#include <asio/associated_allocator.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/execution.hpp>
#include <asio/execution_context.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/post.hpp>
#include <asio/query.hpp>
#include <asio/use_awaitable.hpp>
#if __has_include(<asio/associated_cancellation_slot.hpp>)
#include <asio/associated_cancellation_slot.hpp>
#include <asio/cancellation_type.hpp>
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
namespace rlock::detail::standalone_asio {
namespace net = ::asio;
#include <rlock/detail/objects/asio_call.hpp>
#if defined(ASIO_HAS_CO_AWAIT)
using DefaultToken = net::use_awaitable_t<>;
#else
struct DefaultToken;  // a token has to be given
#endif
}  // namespace rlock::detail::standalone_asio
#undef RLOCK_DETAIL_ASIO_SLOTS
/// @endcond

namespace rlock {

/// Starts an operation as an asynchronous operation of Asio, with the signature
/// `void(std::exception_ptr, T)`, or `void(std::exception_ptr)` for an `Operation<void>`. The
/// exception is the rlock::Error. Inside an `asio::awaitable`:
///
///     rlock::Lease lease = co_await rlock::useAsio(lock.acquireAsync());
///
/// **Thread safety:** as Asio's initiating functions: each operation and each cancellation slot by
/// one thread at a time, any thread.
///
/// The handler is posted to its associated executor, so it runs there, never inside this call and
/// never on the client's loop thread, and it keeps the context busy until then. A handler without
/// an executor runs in Asio's system context. Does not block; the cost is that of the operation.
///
/// A cancellation of any type, by the handler's cancellation slot, ends the call as a stop request
/// does, with `cancelled` (equal to `std::errc::operation_canceled`), and nothing is held then.
/// Releases and questions are not cancelled. Slots need Asio 1.19 (Boost 1.77); before it a stop
/// token in the options does the same. A grant that came before the cancellation is not undone:
/// where `operator||` drops the result of a call, a Lease or Permit is released, and anything else
/// stays held.
///
/// When the execution context is destroyed first, the call is stopped, and its handler destroyed
/// without being called. A Lease or Permit that the call had obtained is released. All else that it
/// had obtained stays: the hold of a lockAsync(), until its owner releases it or the client is
/// closed; permits by their ids, until their leases end or they are released; permits of a
/// Semaphore, until as many are released. An executor that does not say which context it belongs
/// to, like that of an `any_completion_handler`, must outlive the call.
///
/// Where the executor has no memory for the handler, the handler is destroyed without being called,
/// and what a call had obtained is given back: a hold, that of a lockAsync() included, and permits.
/// Permits that were drained are not.
///
/// @param operation  counts as started; one that was started before fails with `invalidArgument`. A
///                   ThreadOperation does not compile
/// @param token      any completion token of Asio's
/// @throws std::bad_alloc  and what the executor throws, as any initiating function
template <class T, class Token = detail::standalone_asio::DefaultToken>
decltype(auto) useAsio(Operation<T> operation, Token&& token = Token()) {
  return detail::standalone_asio::initiate<T, Token>(std::move(operation), token);
}

/// @cond
template <class T, class Token = detail::standalone_asio::DefaultToken>
void useAsio(ThreadOperation<T> /*operation*/, Token&& /*token*/ = Token()) {
  detail::requireOwner<Token>();
}
/// @endcond

}  // namespace rlock
