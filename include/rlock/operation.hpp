// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/block_cache.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/error.hpp>
#include <rlock/result.hpp>

#include <coroutine>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace rlock {

namespace detail {

/// The work of an Operation: run() does it on the calling thread, start() in the background. An
/// Operation calls one of the two, once, and destroys the body in the end; a body that was never
/// started has done nothing.
///
/// **Thread safety:** one thread at a time. start() may finish on another thread after the body is
/// destroyed, so what it began holds its own references.
template <class T>
class OperationBody {
 public:
  OperationBody() = default;
  OperationBody(const OperationBody&) = delete;
  OperationBody& operator=(const OperationBody&) = delete;
  virtual ~OperationBody() = default;

  /// Blocks until the result is there.
  virtual Result<T> run() = 0;
  /// Returns at once; `handler` is called exactly once, later, never inside this call.
  virtual void start(UniqueFunction<void(Result<T>)> handler) = 0;
  /// The token whose stop request ends the call, to be exchanged before the start. Null for a call
  /// that no stop request ends, such as a release.
  virtual std::stop_token* stop() noexcept { return nullptr; }
  /// The function that gives back a hold or permits that the call has obtained and of which nobody
  /// can be told. It may be called on any thread and does not throw. Empty: the result itself gives
  /// it back, or there is none. To be asked for before the start.
  /// @throws std::bad_alloc
  virtual UniqueFunction<void()> undo() = 0;

  /// Made without an owner, so in the name of the thread that made it.
  bool ofThread = false;
};

template <class T, class Run, class Start>
class FunctionBody final : public OperationBody<T>,
                           public FromBlockCache<FunctionBody<T, Run, Start>> {
 public:
  FunctionBody(Run run, Start start) : run_(std::move(run)), start_(std::move(start)) {}
  Result<T> run() override { return run_(); }
  void start(UniqueFunction<void(Result<T>)> handler) override { start_(std::move(handler)); }
  UniqueFunction<void()> undo() override { return {}; }

 private:
  Run run_;
  Start start_;
};

struct OperationAccess;

}  // namespace detail

template <class T>
class ThreadOperation;

/// One call that has been prepared but not started, and the four ways to start it: get() and wait()
/// block, toFuture() and start() return at once, `co_await` suspends.
///
/// **Thread safety:** one thread at a time.
///
/// An Operation is lazy: nothing is sent before it is started, and an Operation that is dropped
/// unstarted does nothing. It can be started once: a second start fails with `invalidArgument`. The
/// result of start(), toFuture() and `co_await` is delivered on `Options::executor` if there is
/// one, else on the client's loop thread, never inside the starting call. A handler must not block
/// that thread. A coroutine that is destroyed while it waits is an error of the program: end the
/// wait by its stop token first.
///
/// GCC 12 destroys an aggregate twice that is made inside a `co_await` expression. AcquireOptions
/// is one, also as a default argument: give the operation a name in the line before.
template <class T>
class [[nodiscard]] Operation {
 public:
  /// Receives the outcome; a callable that can only be moved is accepted.
  using Handler = detail::UniqueFunction<void(Result<T>)>;

  /// For the library's own objects, which make operations.
  explicit Operation(std::unique_ptr<detail::OperationBody<T>> body) noexcept
      : body_(std::move(body)) {}
  ///@{
  /// An Operation that was moved from counts as started.
  Operation(Operation&&) noexcept = default;
  Operation& operator=(Operation&&) noexcept = default;
  ///@}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation() = default;

  /// Blocks until the result is there and returns it; throws the Error instead of returning one.
  /// On the loop thread: `wouldDeadlock`, at once.
  T get() {
    if constexpr (std::is_void_v<T>) {
      wait().value();
    } else {
      return wait().value();
    }
  }

  /// As get(), but the Error is part of what it returns.
  Result<T> wait() {
    if (!body_) {
      return alreadyStarted();
    }
    return std::exchange(body_, nullptr)->run();
  }

  /// Starts in the background. The future gets the value or throws the Error.
  std::future<T> toFuture();

  /// Starts in the background; `handler` gets the Result exactly once. An exception that it throws
  /// is logged and counted in `Stats::handlerFailures`. Throws `invalidArgument` when already
  /// started.
  void start(Handler handler) && {
    if (!body_) {
      detail::throwError(alreadyStarted());
    }
    std::exchange(body_, nullptr)->start(std::move(handler));
  }

  ///@{
  /// `co_await` gives the value or throws the Error. It takes the content of a named operation,
  /// which then counts as started. A call made as a ThreadOperation fails with `invalidArgument`.
  auto operator co_await() && noexcept { return Awaiter{std::move(*this), std::nullopt}; }
  auto operator co_await() & noexcept { return Awaiter{std::move(*this), std::nullopt}; }
  ///@}

 private:
  friend struct detail::OperationAccess;
  friend class ThreadOperation<T>;

  struct Awaiter {
    Operation operation;
    std::optional<Result<T>> result;

    [[nodiscard]] bool await_ready() {
      if (std::optional<Error> why = operation.refuseToAwait()) {
        result.emplace(std::move(*why));
      }
      return result.has_value();
    }
    void await_suspend(std::coroutine_handle<> coroutine);
    T await_resume() {
      if constexpr (std::is_void_v<T>) {
        std::move(*result).value();
      } else {
        return std::move(*result).value();
      }
    }
  };

  static Error alreadyStarted() {
    return Error(Errc::invalidArgument,
                 "this operation was already started, or moved from; make another one");
  }

  /// Why a coroutine cannot await it, or nothing.
  [[nodiscard]] std::optional<Error> refuseToAwait() const;

  std::unique_ptr<detail::OperationBody<T>> body_;
};

template <class T>
std::future<T> Operation<T>::toFuture() {
  std::promise<T> promise;
  std::future<T> future = promise.get_future();
  if (!body_) {
    promise.set_exception(std::make_exception_ptr(alreadyStarted()));
    return future;
  }
  std::exchange(body_, nullptr)->start([promise = std::move(promise)](Result<T> result) mutable {
    if (!result.has_value()) {
      promise.set_exception(std::make_exception_ptr(result.error()));
    } else if constexpr (std::is_void_v<T>) {
      promise.set_value();
    } else {
      promise.set_value(std::move(result).value());
    }
  });
  return future;
}

template <class T>
void Operation<T>::Awaiter::await_suspend(std::coroutine_handle<> coroutine) {
  // Race: the handler may run on another thread at once. The coroutine's frame, and this
  // awaiter in it, may be resumed and destroyed before start() returns.
  auto body = std::exchange(operation.body_, nullptr);
  body->start([this, coroutine](Result<T> value) {
    result.emplace(std::move(value));
    coroutine.resume();
  });
}

template <class T>
std::optional<Error> Operation<T>::refuseToAwait() const {
  if (!body_) {
    return alreadyStarted();
  }
  if (body_->ofThread) {
    return Error(Errc::invalidArgument,
                 "a coroutine has no thread: make an owner by newOwner() and give it to each call");
  }
  return std::nullopt;
}

namespace detail {

/// Does not compile.
template <class Dependent>
constexpr void requireOwner() noexcept {
  static_assert(!std::is_same_v<Dependent, Dependent>,
                "a coroutine has no thread: make an owner by rlock::newOwner() and give it to "
                "each call, as in lock.lockAsync(owner) and lock.unlockAsync(owner)");
}

}  // namespace detail

/// An Operation for which no owner was given, so that its owner is the thread that makes it. It is
/// like an Operation, except that it cannot be awaited: a coroutine continues on another thread, in
/// whose name it could not release. Besides, all coroutines of one thread would be the same owner,
/// so the lock would let them in together. To await it does not compile, and where it was made an
/// Operation before, it fails with `invalidArgument`. So does one that was made on a client's loop
/// thread, because that thread stands for no owner.
template <class T>
class [[nodiscard]] ThreadOperation : public Operation<T> {
 public:
  /// As its base.
  // NOLINTNEXTLINE(google-explicit-constructor): it is made of what made it
  ThreadOperation(Operation<T> operation) noexcept : Operation<T>(std::move(operation)) {
    if (this->body_) {
      this->body_->ofThread = true;
    }
  }

  /// Does not compile.
  template <class Coroutine = void>
  auto operator co_await() const noexcept {
    detail::requireOwner<Coroutine>();
    return std::suspend_never{};
  }
};

namespace detail {

/// Gives adapters to other libraries the content of operations.
struct OperationAccess {
  /// Null for an operation that was started or moved from; otherwise it counts as started now.
  template <class T>
  static std::unique_ptr<OperationBody<T>> take(Operation<T>& operation) noexcept {
    return std::exchange(operation.body_, nullptr);
  }
  /// Why it cannot be awaited, which does not count as a start; or nothing.
  template <class T>
  static std::optional<Error> refuseToAwait(const Operation<T>& operation) {
    return operation.refuseToAwait();
  }
};

/// `run` is `Result<T>()`, `start` is `void(UniqueFunction<void(Result<T>)>)`.
template <class T, class Run, class Start>
Operation<T> makeOperation(Run run, Start start) {
  return Operation<T>(
      std::make_unique<FunctionBody<T, Run, Start>>(std::move(run), std::move(start)));
}

}  // namespace detail

}  // namespace rlock
