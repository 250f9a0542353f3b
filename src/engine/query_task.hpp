// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/task.hpp"
#include <rlock/detail/base/backoff.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// Prepares a change whose reply was lost for being asked for again.
class ChangeAgain final : public Call {
 public:
  using Handler = UniqueFunction<void(const ChangeAgain&, const Outcome&)>;

  ChangeAgain(const Call& change, Handler handler) : handler_(std::move(handler)) {
    const auto marker = change.marker();
    const std::string_view number = marker[1];
    setScript(lua::change_again, 1);
    addArgument(store(marker[0]));
    addArgument(store(number.substr(0, number.find('!'))));
    addArgument(store(marker[2]));
    setRepeatable(true);
    setFreesMemory(true);
  }

 private:
  void finished(Outcome outcome) noexcept override {
    std::exchange(handler_, nullptr)(*this, outcome);
  }

  Handler handler_;
};

/// One call that may be repeated: a question, or a request that carries a marker of its own.
///
/// A request that goes on (Call::goesOn()) ends when it is certain, not when its caller leaves. If
/// it may not be repeated as it is and its reply was lost, ChangeAgain comes first: from then on
/// its marker is there, and without its marker it does nothing, so that it takes effect once
/// however often and however late it is sent.
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
      : Base(std::move(engine), std::move(scripts), owner),
        deadline_(std::min(this->began_ + this->engine_->callTimeout(), until)),
        parse_(std::move(parse)) {
    compose(*this, this->ownerField_);
    if (this->goesOn()) {
      changes_ = true;
      this->engine_->closing().deliveryBegan();
    } else {
      // A composer marks a change that is safe to repeat. A question always is, so composers of
      // questions leave the mark out.
      changes_ = this->repeatable();
      this->setRepeatable(true);
    }
  }

  ~QueryTask() override {
    if (this->goesOn()) {
      this->engine_->closing().deliveryEnded();
    }
  }

  [[nodiscard]] bool mayBeRefused() const noexcept { return !changes_; }

  Result<T> run() {
    Dispatcher& dispatcher = this->engine_->dispatcher();
    const auto limit = Base::later(deadline_, kReplyGrace);
    if (!dispatcher.direct(*this)) {
      dispatcher.start(Dispatcher::CallPtr(this), deadline_);
    } else {
      switch (dispatcher.await(*this, limit)) {
        case Dispatcher::Direct::replied:
          return judge();
        case Dispatcher::Direct::failed:
          return this->describe(dispatcher.takeError(*this));
        case Dispatcher::Direct::trouble:
          dispatcher.resume(Dispatcher::CallPtr(this), deadline_);
          break;
        case Dispatcher::Direct::timedOut:
        case Dispatcher::Direct::interrupted:
          return leave();
      }
    }
    for (;;) {
      const std::uint32_t seen = this->signals();
      if ((seen & Base::kAnswered) != 0) {
        return std::move(*this->result_);
      }
      if (this->engine_->now() >= limit || this->engine_->closed()) {
        return leave();
      }
      this->sleepOrClose(seen, limit);
    }
  }

  void startInBackground(Handler handler) {
    this->handler_ = std::move(handler);
    this->background_ = true;
    this->engine_->dispatcher().post([self = TaskPtr(this)] {
      self->deadlineTimer_ =
          self->engine_->env()->makeTimer([raw = self.get()] { raw->tell(raw->late()); });
      self->deadlineTimer_->armAt(Base::later(self->deadline_, kReplyGrace));
      self->engine_->dispatcher().start(Dispatcher::CallPtr(self.get()), self->deadline_);
    });
  }

 private:
  // On the calling thread.

  /// The caller's time is over.
  Result<T> leave() {
    if (!told_.exchange(true)) {
      return late();
    }
    for (;;) {
      const std::uint32_t seen = this->signals();
      if ((seen & Base::kAnswered) != 0) {
        return std::move(*this->result_);
      }
      this->sleep(seen, Clock::time_point::max());
    }
  }

  // On either.

  Result<T> judge() {
    std::optional<T> value = parse_(this->reply());
    if (!value) {
      return this->describe(Error(Errc::protocolError, "unexpected reply to a query"));
    }
    return std::move(*value);
  }

  Result<T> late() {
    if (this->engine_->closed()) {
      return this->describe(unknown(this->closedError()));
    }
    const Error error(Errc::timedOut, "the server did not answer in time");
    return this->describe(this->goesOn() ? goingOn(error) : unknown(error));
  }

  /// Without an answer nobody knows what became of a change.
  Error unknown(const Error& error) const {
    return changes_ ? Base::doubtful(error, "whether it took effect is not known") : error;
  }
  static Error goingOn(const Error& error) {
    return Base::doubtful(error, "it goes on in the background and takes effect once");
  }

  // On the loop thread.

  void finished(Outcome outcome) noexcept override {
    switch (outcome.kind) {
      case Outcome::Kind::replied:
        tell(judge());
        return;
      case Outcome::Kind::failed:
        wasLost_ = wasLost_ || outcome.maybeExecuted;
        if (this->goesOn()) {
          failed(*outcome.error);
        } else {
          const bool open = wasLost_ || isUnanswered(outcome.error->errc());
          tell(this->describe(open ? unknown(*outcome.error) : *outcome.error));
        }
        return;
      case Outcome::Kind::unknown:
        if (!this->goesOn()) {
          tell(late());
          return;
        }
        wasLost_ = true;
        lostAt_ = this->submittedAt();
        prepare();
        return;
    }
  }

  /// Tells the caller unless it was told or has left. Returns whether that was so.
  bool tell(Result<T> result) {
    deadlineTimer_.reset();
    if (told_.exchange(true)) {
      return true;
    }
    this->answer(std::move(result));
    return false;
  }

  /// Not executed, this time.
  void failed(const Error& error) {
    if (this->delivery() == net::Request::Delivery::replied && this->reply().isError() &&
        this->reply().text.starts_with("RLOCKLAPSED")) {
      // The marker cannot have lapsed, so the server has lost what it wrote last.
      prepare();
      return;
    }
    if (!mayPass(error.errc())) {
      const bool left = tell(this->describe(wasLost_ ? unknown(error) : error));
      if (left || error.errc() == Errc::closed) {
        giveUp(error);
      }
      return;
    }
    if (this->engine_->now() >= deadline_) {
      tell(this->describe(goingOn(error)));
    } else if (!wasLost_ && !tell(this->describe(error))) {
      // A certain failure is the caller's to repeat, as long as there is a caller.
      return;
    }
    pause(error, [self = TaskPtr(this)] { self->again(); });
  }

  void again() {
    const auto now = this->engine_->now();
    this->engine_->dispatcher().start(Dispatcher::CallPtr(this),
                                      now < deadline_ ? deadline_ : now + std::chrono::hours(1));
  }

  /// It was sent at lostAt_, and has run or not.
  void prepare() {
    const auto until = lostAt_ + trustedPart(this->engine_->markers()->life());
    this->engine_->dispatcher().start(
        makeIntrusive<ChangeAgain>(
            *this,
            [self = TaskPtr(this), until](const ChangeAgain& prepared, const Outcome& outcome) {
              self->prepared(prepared, outcome, until);
            }),
        until);
  }

  void prepared(const ChangeAgain& again, const Outcome& outcome, Clock::time_point until) {
    if (this->engine_->now() >= until) {
      giveUp(Error(Errc::timedOut, "there was no answer while its marker was certain to last"));
    } else if (outcome.kind == Outcome::Kind::replied) {
      lostAt_ = again.submittedAt();
      this->setAgain();
      this->again();
    } else if (mayPass(outcome.error->errc())) {
      pause(*outcome.error, [self = TaskPtr(this)] { self->prepare(); });
    } else {
      giveUp(*outcome.error);
    }
  }

  static bool isUnanswered(Errc errc) noexcept {
    return errc == Errc::timedOut || errc == Errc::connectionFailed || errc == Errc::closed;
  }
  /// Whether it may be otherwise in a moment.
  static bool mayPass(Errc errc) noexcept {
    switch (errc) {
      case Errc::connectionFailed:
      case Errc::timedOut:
      case Errc::authenticationFailed:
      case Errc::denied:
      case Errc::outOfMemory:
      case Errc::readOnly:
      case Errc::notSynced:
      case Errc::serverError:
        return true;
      default:
        return false;
    }
  }

  void pause(const Error& error, UniqueFunction<void()> then) {
    const Options& options = this->engine_->options();
    if (this->engine_->closed()) {
      // Nothing waits for a time any more. What fails at once would do so without end.
      if (std::exchange(closing_, true)) {
        giveUp(error);
      } else {
        then();
      }
      return;
    }
    const int attempt = attempts_++;
    const auto random = static_cast<std::uint32_t>(attempt) * 2654435761U >> 8U;
    const auto wait = backoffPause(options.retryDelayMin, options.retryDelayMax, attempt, random);
    this->engine_->callbacks().callAt(this->engine_->now() + wait, std::move(then));
  }

  void giveUp(const Error& why) {
    tell(this->describe(wasLost_ ? unknown(why) : why));
    this->engine_->log().write(
        LogLevel::error,
        fmt::format("{} \"{}\": what was to be given back or counted is given up, {}: {}",
                    this->scripts_->noun(),
                    escapeForDisplay(this->scripts_->name),
                    wasLost_ ? "and whether it took effect is not known" : "it took no effect",
                    why.what()));
  }

  const Clock::time_point deadline_;
  const Parse parse_;
  bool changes_ = false;
  /// The caller was told, or has left.
  std::atomic<bool> told_{false};

  // Loop thread only.
  std::unique_ptr<Timer> deadlineTimer_;
  bool wasLost_ = false;
  Clock::time_point lostAt_{};
  int attempts_ = 0;
  bool closing_ = false;
};

}  // namespace rlock::detail
