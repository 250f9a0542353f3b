// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/unique_function.hpp>
#include <rlock/error.hpp>
#include <rlock/operation.hpp>
#include <rlock/result.hpp>

#include <utility>

// The answers of handles that were moved from: such a handle has no client that could answer.

namespace rlock::detail {

[[nodiscard]] Error movedFromError();

/// Calls `function` on a thread of its own; an exception that it throws is dropped.
void callElsewhere(UniqueFunction<void()> function);

/// The background form of an operation that fails without any client.
template <class T>
auto failing(Error error) {
  return [error = std::move(error)](UniqueFunction<void(Result<T>)> handler) {
    callElsewhere([error, handler = std::move(handler)]() mutable { handler(Result<T>(error)); });
  };
}

/// An operation of a handle that was moved from.
template <class T>
Operation<T> movedFrom() {
  return makeOperation<T>([]() -> Result<T> { return movedFromError(); },
                          failing<T>(movedFromError()));
}

/// The object behind a handle.
/// @throws Error  `invalidArgument` when the handle was moved from
template <class Pointer>
const Pointer& present(const Pointer& pointer) {
  if (!pointer) {
    throw movedFromError();
  }
  return pointer;
}

}  // namespace rlock::detail
