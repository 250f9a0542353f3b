// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/lock.hpp>
#include <rlock/operation.hpp>
#include <rlock/owner.hpp>
#include <rlock/result.hpp>

#include <coroutine>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <optional>
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

// The results that most tests ask for are compiled once, in faces.cpp.
extern template std::future<Result<void>> startBy(Face face, Operation<void> operation);
extern template std::future<Result<bool>> startBy(Face face, Operation<bool> operation);
extern template std::future<Result<int>> startBy(Face face, Operation<int> operation);
extern template std::future<Result<std::int64_t>> startBy(Face face,
                                                          Operation<std::int64_t> operation);
extern template std::future<Result<Lease>> startBy(Face face, Operation<Lease> operation);
extern template Result<void> runBy(Face face, Operation<void> operation);
extern template Result<bool> runBy(Face face, Operation<bool> operation);
extern template Result<int> runBy(Face face, Operation<int> operation);
extern template Result<std::int64_t> runBy(Face face, Operation<std::int64_t> operation);
extern template Result<Lease> runBy(Face face, Operation<Lease> operation);

/// One lock used by one face. Calls in the name of the running thread by the blocking face are the
/// plain blocking calls; everything else goes through Operation.
class FaceLock {
 public:
  FaceLock(Face face, RLock lock) : face_(face), lock_(std::move(lock)) {}

  [[nodiscard]] Face face() const { return face_; }
  [[nodiscard]] RLock& raw() { return lock_; }

  Result<void> lock(OwnerId owner = currentOwner(), std::optional<Duration> lease = {});
  Result<bool> tryLock(OwnerId owner = currentOwner(),
                       std::optional<Duration> wait = {},
                       std::optional<Duration> lease = {});
  Result<void> unlock(OwnerId owner = currentOwner());
  Result<bool> forceUnlock();
  bool isLocked();
  bool isHeldBy(OwnerId owner);
  bool isHeldByCurrentThread();
  int holdCount(OwnerId owner = currentOwner());

 private:
  [[nodiscard]] bool direct(OwnerId owner) const {
    return face_ == Face::blocking && owner == currentOwner();
  }

  Face face_;
  RLock lock_;
};

}  // namespace rlock::test
