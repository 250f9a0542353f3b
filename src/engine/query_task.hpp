// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/task.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// One call that may be repeated: a question, or a request that carries a marker of its own.
template <class T>
class QueryTask final : public Task<T> {
 public:
  using Base = Task<T>;
  using Clock = std::chrono::steady_clock;
  using Handler = typename Base::Handler;
  using TaskPtr = IntrusivePtr<QueryTask>;
  /// Reads the answer; empty: not what was asked for.
  using Parse = std::function<std::optional<T>(const Reply&)>;

  /// @param compose  fills in the call; what it refers to must be owned by the task: use
  /// Call::store()
  /// @param until    a limit beside callTimeout, for one of several calls
  QueryTask(std::shared_ptr<LockEngine> engine,
            std::shared_ptr<const LockScripts> scripts,
            OwnerId owner,
            const std::function<void(Call&, std::string_view owner)>& compose,
            Parse parse,
            Clock::time_point until = Clock::time_point::max())
      : Base(std::move(engine), std::move(scripts), owner, Clock::now()),
        deadline_(std::min(this->began_ + this->engine_->callTimeout(), until)),
        parse_(std::move(parse)) {
    compose(*this, this->ownerField_);
    // A question is safe to repeat by itself; what says so changes something.
    changes_ = this->repeatable();
    this->setRepeatable(true);
  }

  [[nodiscard]] bool mayBeRefused() const noexcept { return !changes_; }

  Result<T> run() {
    Executor& executor = this->engine_->executor();
    const auto limit = Base::later(deadline_, kReplyGrace);
    if (!executor.direct(*this)) {
      executor.start(Executor::CallPtr(this), deadline_);
    } else {
      switch (executor.await(*this, limit)) {
        case Executor::Direct::replied:
          return judge();
        case Executor::Direct::failed:
          return this->describe(executor.takeError(*this));
        case Executor::Direct::trouble:
          executor.resume(Executor::CallPtr(this), deadline_);
          break;
        case Executor::Direct::timedOut:
        case Executor::Direct::interrupted:
          return late();
      }
    }
    for (;;) {
      const std::uint32_t seen = this->signals();
      if ((seen & Base::kAnswered) != 0) {
        return std::move(*this->result_);
      }
      if (Clock::now() >= limit || this->engine_->closed()) {
        return late();
      }
      this->sleepOrClose(seen, limit);
    }
  }

  void startInBackground(Handler handler) {
    this->handler_ = std::move(handler);
    this->background_ = true;
    this->engine_->executor().post([self = TaskPtr(this)] {
      self->deadlineTimer_ =
          std::make_unique<Timer>(self->engine_->executor().loop(), [raw = self.get()] {
            raw->deadlineTimer_.reset();
            raw->tellOnce(raw->late());
          });
      self->deadlineTimer_->armAt(Base::later(self->deadline_, kReplyGrace));
      self->engine_->executor().start(Executor::CallPtr(self.get()), self->deadline_);
    });
  }

 private:
  void finished(Outcome outcome) noexcept override {
    deadlineTimer_.reset();
    switch (outcome.kind) {
      case Outcome::Kind::replied:
        tellOnce(judge());
        return;
      case Outcome::Kind::failed:
        tellOnce(this->describe(outcome.maybeExecuted && changes_
                                    ? this->doubtful(*outcome.error, kDoubt)
                                    : unanswered(std::move(*outcome.error))));
        return;
      case Outcome::Kind::unknown:
        tellOnce(late());
        return;
    }
  }

  Result<T> judge() {
    std::optional<T> value = parse_(this->reply());
    if (!value) {
      return this->describe(Error(Errc::protocolError, "unexpected reply to a query"));
    }
    return std::move(*value);
  }

  Result<T> late() {
    return this->describe(unanswered(
        this->engine_->closed() ? this->closedError()
                                : Error(Errc::timedOut, "the server did not answer in time")));
  }

  /// Without an answer nobody knows what became of a change.
  Error unanswered(Error error) const {
    const bool open = error.errc() == Errc::timedOut || error.errc() == Errc::connectionFailed ||
                      error.errc() == Errc::closed;
    return changes_ && open ? this->doubtful(error, kDoubt) : error;
  }

  void tellOnce(Result<T> result) {
    if (!std::exchange(told_, true)) {
      this->answer(std::move(result));
    }
  }

  static constexpr std::string_view kDoubt = "whether it took effect is not known";

  const Clock::time_point deadline_;
  const Parse parse_;
  bool changes_ = false;
  bool told_ = false;                     // loop thread only
  std::unique_ptr<Timer> deadlineTimer_;  // loop thread only
};

}  // namespace rlock::detail
