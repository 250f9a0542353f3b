// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/unique_function.hpp>
#include <rlock/operation.hpp>
#include <rlock/result.hpp>

#include <utility>

namespace rlock::detail {

/// Makes an operation of the two forms that a backend has of a call, and of a conversion of the
/// result.
/// @param run      `Result<From>()`, on the calling thread
/// @param start    `void(UniqueFunction<void(Result<From>)>)`, in the background
/// @param convert  `Result<T>(Result<From>)`
template <class T, class From, class Run, class Start, class Convert>
Operation<T> operation(Run run, Start start, Convert convert) {
  return makeOperation<T>(
      [run, convert]() mutable -> Result<T> { return convert(run()); },
      [start, convert](UniqueFunction<void(Result<T>)> handler) mutable {
        start([handler = std::move(handler), convert](Result<From> result) mutable {
          handler(convert(std::move(result)));
        });
      });
}

/// A conversion for operation() that leaves the result as it is.
template <class T>
Result<T> same(Result<T> result) {
  return result;
}

}  // namespace rlock::detail
