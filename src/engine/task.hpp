// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/error.hpp>
#include <rlock/result.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// How long after its time is up a caller still waits for a reply that is on its way: nearly always
/// it comes at once, and then the answer is certain. Part of the 50 ms that every call may be late.
inline constexpr std::chrono::milliseconds kReplyGrace{25};

/// One operation of one caller, in the course of which calls are made. Either a thread waits for
/// it, in run(), or a handler does. A waiting thread sends and reads itself while all goes well;
/// the loop thread does everything else, and finishes what the caller does not wait for.
///
/// **Thread safety:** events come from any thread; each makes its state change under mutex_ and
/// acts on it afterwards, without.
template <class T>
class Task : public Call {
 public:
  using Clock = std::chrono::steady_clock;
  using Handler = UniqueFunction<void(Result<T>)>;

  /// Where the handler runs. Before the start.
  void setHandlerPlace(HandlerPlace place) noexcept { handlerPlace_ = place; }

  /// Whether too much work is a reason not to begin it. What gives something back must go on.
  [[nodiscard]] static constexpr bool mayBeRefused() noexcept { return false; }

 protected:
  enum Signal : std::uint32_t {
    kSent = 1,      // a request was sent on behalf of the sleeping thread, which takes its reply
    kMoved = 2,     // the loop thread has taken over
    kStopped = 4,   // the caller's stop token
    kClosed = 8,    // the client was closed
    kAnswered = 16  // result_ is there
  };

  /// A handler that was never called, because the loop ended first, is called now.
  ~Task() override {
    engine_->operationEnds();
    if (background_ && handler_) {
      engine_->callbacks().reject(
          [handler = std::move(handler_), error = closedError()]() mutable {
            handler(Result<T>(std::move(error)));
          },
          handlerPlace_);
    }
  }

  Task(std::shared_ptr<LockEngine> engine,
       std::shared_ptr<const LockScripts> scripts,
       OwnerId owner)
      : engine_(std::move(engine)),
        scripts_(std::move(scripts)),
        owner_(owner),
        ownerField_(engine_->ownerField(owner)),
        began_(engine_->now()) {
    engine_->operationBegins();
  }

  [[nodiscard]] Error describe(Error error) const {
    return engine_->describe(std::move(error), *scripts_, owner_, began_);
  }
  /// Says of a failure that it is none for certain.
  [[nodiscard]] static Error doubtful(const Error& error, std::string_view doubt) {
    return Error(error.errc(), error.message() + "; " + std::string(doubt), error.context());
  }
  [[nodiscard]] Error closedError() const { return Error(Errc::closed, "the client was closed"); }

  void signal(std::uint32_t bits) noexcept {
    signals_.fetch_or(bits, std::memory_order_acq_rel);
    // Waking nobody is a cheap system call, and signals are rare.
    engine_->env()->wakeOne(&signals_);
  }
  [[nodiscard]] std::uint32_t signals() const noexcept {
    return signals_.load(std::memory_order_acquire);
  }
  void clear(std::uint32_t bits) noexcept { signals_.fetch_and(~bits, std::memory_order_acq_rel); }
  /// Sleeps until a signal that is not in `seen` comes, at most until `deadline`.
  void sleep(std::uint32_t seen, Clock::time_point deadline) noexcept {
    engine_->env()->sleep(signals_, seen, deadline);
  }

  /// A handler waits, not a thread.
  [[nodiscard]] bool inBackground() const noexcept { return background_; }

  /// Tells whoever waits. At most once. Not for a thread that has its answer in its hand.
  void answer(Result<T> result) {
    result_.emplace(std::move(result));
    if (!background_) {
      signal(kAnswered);
      return;
    }
    // What is passed on is no more than the task, so that it takes no memory.
    engine_->callbacks().deliver(
        [self = IntrusivePtr<Task>(this)] {
          Handler handler = std::move(self->handler_);
          handler(std::move(*self->result_));
        },
        handlerPlace_);
  }

  /// As sleep(), but looks from time to time whether the client was closed: then the loop may have
  /// ended before it could answer.
  void sleepOrClose(std::uint32_t seen, Clock::time_point deadline) noexcept {
    sleep(seen, std::min(deadline, engine_->now() + std::chrono::milliseconds(100)));
  }

  static Clock::time_point later(Clock::time_point when, Clock::duration by) noexcept {
    return when > Clock::time_point::max() - by ? Clock::time_point::max() : when + by;
  }

  const std::shared_ptr<LockEngine> engine_;
  const std::shared_ptr<const LockScripts> scripts_;
  const OwnerId owner_;
  const std::string ownerField_;
  const Clock::time_point began_;
  AnnotatedMutex mutex_;
  std::optional<Result<T>> result_;
  Handler handler_;
  bool background_ = false;
  HandlerPlace handlerPlace_ = HandlerPlace::application;

 private:
  std::atomic<std::uint32_t> signals_{0};
};

}  // namespace rlock::detail
