// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/lock.hpp>
#include <rlock/operation.hpp>
#include <rlock/owner.hpp>
#include <rlock/result.hpp>

#include <coroutine>
#include <exception>
#include <future>
#include <memory>
#include <ostream>
#include <string>
#include <utility>

namespace rlock::test {

/// The four ways to start one operation.
enum class Face { blocking, callback, future, coroutine };

inline constexpr Face kFaces[] = {Face::blocking, Face::callback, Face::future, Face::coroutine};

inline const char* toString(Face face) {
  switch (face) {
    case Face::blocking:
      return "blocking";
    case Face::callback:
      return "callback";
    case Face::future:
      return "future";
    case Face::coroutine:
      return "coroutine";
  }
  return "unknown";
}

inline std::ostream& operator<<(std::ostream& out, Face face) {
  return out << toString(face);
}

/// A coroutine that nobody waits for; what it finds out goes into a promise.
struct Detached {
  struct promise_type {
    Detached get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { std::terminate(); }
  };
};

template <class T>
using ResultPromise = std::shared_ptr<std::promise<Result<T>>>;

template <class T>
Detached awaitInto(Operation<T> operation, ResultPromise<T> promise) {
  try {
    if constexpr (std::is_void_v<T>) {
      co_await std::move(operation);
      promise->set_value(Result<void>());
    } else {
      promise->set_value(Result<T>(co_await std::move(operation)));
    }
  } catch (const Error& error) {
    promise->set_value(Result<T>(error));
  }
}

/// Starts the operation by one face; the future has its result. Only `blocking` blocks here.
template <class T>
std::future<Result<T>> startBy(Face face, Operation<T> operation) {
  auto promise = std::make_shared<std::promise<Result<T>>>();
  std::future<Result<T>> future = promise->get_future();
  switch (face) {
    case Face::blocking:
      promise->set_value(operation.wait());
      break;
    case Face::callback:
      std::move(operation).start(
          [promise](Result<T> result) { promise->set_value(std::move(result)); });
      break;
    case Face::future:
      return std::async(std::launch::deferred,
                        [inner = operation.toFuture()]() mutable -> Result<T> {
                          try {
                            if constexpr (std::is_void_v<T>) {
                              inner.get();
                              return {};
                            } else {
                              return inner.get();
                            }
                          } catch (const Error& error) {
                            return error;
                          }
                        });
    case Face::coroutine:
      awaitInto(std::move(operation), promise);
      break;
  }
  return future;
}

/// Runs the operation to its end by one face.
template <class T>
Result<T> runBy(Face face, Operation<T> operation) {
  return startBy(face, std::move(operation)).get();
}

/// One lock used by one face. Calls in the name of the running thread by the blocking face are the
/// plain blocking calls; everything else goes through Operation.
class FaceLock {
 public:
  FaceLock(Face face, RLock lock) : face_(face), lock_(std::move(lock)) {}

  [[nodiscard]] Face face() const { return face_; }
  [[nodiscard]] RLock& raw() { return lock_; }

  Result<void> lock(OwnerId owner = currentOwner(), std::optional<Duration> lease = {}) {
    if (direct(owner)) {
      return caught<void>([&] { lease ? lock_.lock(*lease) : lock_.lock(); });
    }
    AcquireOptions options;
    options.lease = lease;
    return runBy(face_, lock_.lockAsync(std::move(options), owner));
  }
  Result<bool> tryLock(OwnerId owner = currentOwner(),
                       std::optional<Duration> wait = {},
                       std::optional<Duration> lease = {}) {
    if (direct(owner)) {
      return caught<bool>([&] {
        if (lease) {
          return lock_.tryLock(wait.value_or(Duration::zero()), *lease);
        }
        return wait ? lock_.tryLock(*wait) : lock_.tryLock();
      });
    }
    AcquireOptions options;
    options.wait = wait;
    options.lease = lease;
    return runBy(face_, lock_.tryLockAsync(std::move(options), owner));
  }
  Result<void> unlock(OwnerId owner = currentOwner()) {
    if (direct(owner)) {
      return caught<void>([&] { lock_.unlock(); });
    }
    return runBy(face_, lock_.unlockAsync(owner));
  }
  Result<bool> forceUnlock() {
    return face_ == Face::blocking ? caught<bool>([&] { return lock_.forceUnlock(); })
                                   : runBy(face_, lock_.forceUnlockAsync());
  }
  bool isLocked() {
    return face_ == Face::blocking ? lock_.isLocked() : runBy(face_, lock_.isLockedAsync()).value();
  }
  bool isHeldBy(OwnerId owner) {
    return face_ == Face::blocking ? lock_.isHeldBy(owner)
                                   : runBy(face_, lock_.isHeldByAsync(owner)).value();
  }
  bool isHeldByCurrentThread() {
    return face_ == Face::blocking ? lock_.isHeldByCurrentThread()
                                   : runBy(face_, lock_.isHeldByCurrentThreadAsync()).value();
  }
  int holdCount(OwnerId owner = currentOwner()) {
    return direct(owner) ? lock_.getHoldCount()
                         : runBy(face_, lock_.getHoldCountAsync(owner)).value();
  }

 private:
  [[nodiscard]] bool direct(OwnerId owner) const {
    return face_ == Face::blocking && owner == currentOwner();
  }
  template <class T, class F>
  static Result<T> caught(F call) {
    try {
      if constexpr (std::is_void_v<T>) {
        call();
        return {};
      } else {
        return call();
      }
    } catch (const Error& error) {
      return error;
    }
  }

  Face face_;
  RLock lock_;
};

}  // namespace rlock::test
