// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "objects/moved_from.hpp"
#include "objects/operations.hpp"
#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/error.hpp>
#include <rlock/lock.hpp>

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

// The common part of the public locks: they turn arguments into AcquireParams and outcomes into
// results here.

namespace rlock::detail {

using Acquired = LockBackend::Acquired;

inline AcquireParams paramsFor(OwnerId owner) {
  AcquireParams result;
  result.owner = owner;
  return result;
}

inline AcquireParams params(OwnerId owner,
                            Duration wait,
                            std::optional<Duration> lease = {},
                            std::stop_token stop = {}) {
  AcquireParams result = paramsFor(owner);
  result.wait = wait;
  result.lease = lease;
  result.stop = std::move(stop);
  return result;
}

inline AcquireParams params(AcquireOptions options,
                            OwnerId owner,
                            Duration defaultWait,
                            bool wantsHandle) {
  AcquireParams result = paramsFor(owner);
  result.wait = options.wait.value_or(defaultWait);
  result.lease = options.lease;
  result.maxHold = options.maxHold;
  result.stop = std::move(options.stop);
  result.label = std::move(options.label);
  result.sync = options.sync;
  result.wantsHandle = wantsHandle;
  return result;
}

inline Error notInTime(const std::string& name) {
  ErrorContext context;
  context.key = name;
  return Error(Errc::timedOut, "another owner held it for the whole wait", std::move(context));
}

/// The result of a call that must obtain the lock: a refusal becomes `timedOut`.
template <class T, class Convert>
Result<T> obtained(const std::shared_ptr<LockBackend>& backend,
                   Result<Acquired> result,
                   Convert convert) {
  if (!result.has_value()) {
    return result.error();
  }
  if (!*result) {
    return notInTime(backend->name());
  }
  return convert(std::move(**result));
}

/// Gives back one hold of an owner, of which it was not told.
inline void giveBack(LockBackend& backend, OwnerId owner) noexcept {
  // Without memory for the second try, either, its owner or its lease ends it.
  ifThereIsMemorySoon([&] { backend.releaseQuietly({owner}); });
}

template <class T, class Convert>
Operation<T> acquisition(std::shared_ptr<LockBackend> backend,
                         AcquireParams&& params,
                         Convert convert) {
  const auto run = [backend](AcquireParams&& given) { return backend->acquire(std::move(given)); };
  const auto start = [backend](AcquireParams&& given, LockBackend::Handler<Acquired> handler) {
    backend->acquireAsync(std::move(given), std::move(handler));
  };
  if (params.wantsHandle) {
    // Its Lease gives it back.
    return stoppable<T, Acquired>(std::move(params), run, start, std::move(convert));
  }
  const auto undo = [backend, owner = params.owner]() -> UniqueFunction<void()> {
    return [backend, owner] { giveBack(*backend, owner); };
  };
  return stoppable<T, Acquired>(std::move(params), run, start, std::move(convert), undo);
}

/// An operation in the name of the calling thread, because no owner was given.
/// @param make  `Operation<T>(OwnerId)`
template <class T, class Make>
ThreadOperation<T> inNameOfThread(const std::shared_ptr<LockBackend>& backend, Make make) {
  auto made = make(currentOwner());
  if (!backend || !backend->refusesBlocking()) {
    return made;
  }
  ErrorContext context;
  context.key = backend->name();
  const Error error(Errc::invalidArgument,
                    "the loop thread is no owner: make one by newOwner() and give it to each call",
                    std::move(context));
  return makeOperation<T>(
      [backend, error, made = std::move(made)]() mutable -> Result<T> {
        // On the loop thread the operation would block its own loop, so that error comes first.
        return backend->refusesBlocking() ? made.wait() : error;
      },
      // Not on a thread of its own: an application that runs the loop itself expects none.
      [backend, error](UniqueFunction<void(Result<T>)> handler) {
        backend->runHandler(
            [error, handler = std::move(handler)]() mutable { handler(Result<T>(error)); });
      });
}

}  // namespace rlock::detail
