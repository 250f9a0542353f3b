// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/engine/delayed_calls.hpp>
#include <rlock/detail/engine/engine_context.hpp>
#include <rlock/log.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>

namespace rlock::detail {

/// Where a handler runs.
enum class HandlerPlace : std::uint8_t {
  application,  ///< on Options::executor if there is one
  loop          ///< on the loop thread: part of the library's own work
};

/// Runs code of the application, and the library's own code at a point in time.
///
/// Each function that is passed in runs exactly once, as long as there is a thread to run it on. A
/// function that throws is logged and counted, and nothing else happens.
///
/// **Thread safety:** Safe to call concurrently from any thread, unless a method says otherwise.
/// The caller holds no lock of the engine: on the loop thread deliver() runs the function at once.
class Callbacks {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Callbacks(EngineContext& context)
      : context_(context),
        delayed_(context.env(), [this] { runDue(); }),
        arm_(context.env()->makeTask([this] { runDue(); })) {
    // Made now: the calls of this client end with it when nothing else can be made.
    noMemory();
  }

  /// Runs application code on the callback thread, or here when there is no memory to get there:
  /// whoever waits for it would wait for ever.
  void deliver(UniqueFunction<void()> function,
               HandlerPlace place = HandlerPlace::application) noexcept;
  /// As deliver(), for a call that is refused before it begins: on another thread or later, also
  /// without a loop.
  void reject(UniqueFunction<void()> function,
              HandlerPlace place = HandlerPlace::application) noexcept;
  ///@{
  /// The same for a callable that there may be no memory to make a function of: then it runs here,
  /// as what it owns would be lost.
  template <UniqueFunctionTarget<void> F>
  void deliver(F callable, HandlerPlace place = HandlerPlace::application) noexcept {
    withFunction(callable, [&](auto function) { deliver(std::move(function), place); });
  }
  template <UniqueFunctionTarget<void> F>
  void reject(F callable, HandlerPlace place = HandlerPlace::application) noexcept {
    withFunction(callable, [&](auto function) { reject(std::move(function), place); });
  }
  ///@}
  /// Calls `function` on the loop thread: at `when`, or when the client is closed; on any thread
  /// where there is no loop any more.
  /// @throws std::bad_alloc  then it is not called
  void callAt(Clock::time_point when, UniqueFunction<void()> function);
  /// The client is closed: calls that still wait for their time are made now. Loop thread.
  void close() noexcept;

 private:
  class Refusal;
  class Submission;

  template <class F, class Pass>
  void withFunction(F& callable, Pass pass) noexcept;
  void runGuarded(UniqueFunction<void()>& function) noexcept;
  /// @param function  does not throw
  template <class F>
  void runElsewhere(F function) noexcept;
  void runDue() noexcept;

  EngineContext& context_;
  DelayedCalls delayed_;
  const std::unique_ptr<ReadyTask> arm_;
};

template <class F, class Pass>
void Callbacks::withFunction(F& callable, Pass pass) noexcept {
  UniqueFunction<void()> function;
  try {
    // An allocation that fails has not moved it yet.
    function = UniqueFunction<void()>(std::move(callable));
  } catch (const std::bad_alloc&) {
    function = UniqueFunction<void()>([&callable] { callable(); });
    runGuarded(function);
    return;
  }
  pass(std::move(function));
}

inline void Callbacks::runGuarded(UniqueFunction<void()>& function) noexcept {
  try {
    function();
    return;
  } catch (const std::exception& failure) {
    context_.counters().handlerFailures.fetch_add(1, std::memory_order_relaxed);
    const bool told = ifThereIsMemory([&] {
      context_.log().write(LogLevel::error, std::string("a callback threw: ") + failure.what());
    });
    if (!told) {
      // There was no memory for more than its own words.
      context_.log().write(LogLevel::error, failure.what());
    }
    return;
  } catch (...) {
    context_.counters().handlerFailures.fetch_add(1, std::memory_order_relaxed);
  }
  context_.log().write(LogLevel::error, "a callback threw: unknown exception");
}

/// Application code on its way through the executor. It may tell that a lock is held, so if the
/// executor throws, or drops it, the loop runs it.
class Callbacks::Submission {
 public:
  Submission(std::shared_ptr<Callbacks> callbacks, UniqueFunction<void()> function) noexcept
      : callbacks_(std::move(callbacks)), function_(std::move(function)) {}
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;
  ~Submission() {
    if (function_ && callbacks_->context_.inItsProcess()) {
      callbacks_->reject(std::move(function_), HandlerPlace::loop);
    }
  }

  void run() noexcept {
    UniqueFunction<void()> taken = std::move(function_);
    if (taken) {
      callbacks_->runGuarded(taken);
    }
  }

 private:
  const std::shared_ptr<Callbacks> callbacks_;
  UniqueFunction<void()> function_;
};

inline void Callbacks::deliver(UniqueFunction<void()> function, HandlerPlace place) noexcept {
  const auto& executor = context_.options().executor;
  const bool submits = executor && place == HandlerPlace::application;
  if (!submits && context_.dispatcher().onLoopThread()) {
    runGuarded(function);
    return;
  }
  if (submits) {
    std::shared_ptr<Submission> submission;
    std::function<void()> task;
    try {
      // An allocation that fails has not moved the function yet.
      submission = std::make_shared<Submission>(context_.sharing(*this), std::move(function));
      task = [submission] { submission->run(); };
    } catch (const std::bad_alloc&) {
      if (submission) {
        submission->run();
      } else {
        runGuarded(function);
      }
      return;
    }
    UniqueFunction<void()> submit([&] { executor(std::move(task)); });
    runGuarded(submit);
    return;
  }
  // Shared, because the loop's queue takes over what it is given before it fails.
  std::shared_ptr<UniqueFunction<void()>> work;
  try {
    work = std::make_shared<UniqueFunction<void()>>(std::move(function));
    context_.dispatcher().post([self = context_.sharing(*this), work] {
      // The handler and its captures end on this thread, and not with the one that has posted it.
      UniqueFunction<void()> taken = std::move(*work);
      self->runGuarded(taken);
    });
  } catch (const std::bad_alloc&) {
    runGuarded(work ? *work : function);
  }
}

/// A refusal on its way to the loop thread. A loop that ends first drops it: then another thread
/// tells it.
class Callbacks::Refusal {
 public:
  Refusal(Callbacks& callbacks, UniqueFunction<void()> tell) noexcept
      : callbacks_(callbacks), tell_(std::move(tell)) {}
  Refusal(const Refusal&) = delete;
  Refusal& operator=(const Refusal&) = delete;
  ~Refusal() {
    if (tell_) {
      callbacks_.runElsewhere(std::move(tell_));
    }
  }

  void tell() noexcept {
    UniqueFunction<void()> now = std::move(tell_);
    now();
  }

 private:
  Callbacks& callbacks_;         // kept by what `tell_` owns
  UniqueFunction<void()> tell_;  // does not throw
};

inline void Callbacks::reject(UniqueFunction<void()> function, HandlerPlace place) noexcept {
  // There may be no loop any more, and neither the handler nor an executor that calls it at once
  // may run inside the call that starts it.
  const bool onLoop = !context_.closed() && context_.inItsProcess();
  const bool submits = context_.options().executor && place == HandlerPlace::application;
  auto run = [self = context_.sharing(*this),
              function = std::move(function),
              place,
              delivers = onLoop || submits]() mutable {
    if (delivers) {
      self->deliver(std::move(function), place);
    } else {
      self->runGuarded(function);
    }
  };
  if (!onLoop) {
    runElsewhere(std::move(run));
    return;
  }
  // Shared, because the loop's queue takes over what it is given before it fails.
  std::shared_ptr<Refusal> refusal;
  try {
    refusal = std::make_shared<Refusal>(*this, std::move(run));
    context_.dispatcher().post([refusal] { refusal->tell(); });
  } catch (const std::exception&) {
    if (refusal) {
      refusal->tell();
    } else {
      run();
    }
  }
}

template <class F>
void Callbacks::runElsewhere(F function) noexcept {
  // Shared, because a thread that cannot be started may have taken it over before it fails.
  std::shared_ptr<F> work;
  try {
    work = std::make_shared<F>(std::move(function));
    context_.env()->runElsewhere([work] { (*work)(); });
  } catch (const std::exception&) {
    // There is no memory, or no further thread. An allocation that fails has not moved it yet.
    if (work) {
      (*work)();
    } else {
      function();
    }
  }
}

inline void Callbacks::callAt(Clock::time_point when, UniqueFunction<void()> function) {
  switch (delayed_.add(when, function)) {
    case DelayedCalls::Added::refused:
      reject(std::move(function), HandlerPlace::loop);
      return;
    case DelayedCalls::Added::waits:
      return;
    case DelayedCalls::Added::next:
      // Made in advance: nobody else would set the timer earlier.
      arm_->post(context_.sharing(*this));
      return;
  }
}

inline void Callbacks::close() noexcept {
  delayed_.close();
  runDue();
}

inline void Callbacks::runDue() noexcept {
  for (auto& call : delayed_.due()) {
    runGuarded(call.second);
  }
}

}  // namespace rlock::detail
