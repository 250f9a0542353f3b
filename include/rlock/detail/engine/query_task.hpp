// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/base/backoff.hpp>
#include <rlock/detail/engine/repetition.hpp>
#include <rlock/detail/engine/task.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>

#include <fmt/format.h>

#include <algorithm>
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
    const auto idempotencyKey = change.idempotencyKey();
    const std::string_view number = idempotencyKey[1];
    setScript(lua::change_again, 1);
    addArgument(store(idempotencyKey[0]));
    addArgument(store(number.substr(0, number.find('!'))));
    addArgument(store(idempotencyKey[2]));
    setRepeatable(true);
    setFreesMemory(true);
  }

 private:
  void finished(Outcome outcome) noexcept override {
    std::exchange(handler_, nullptr)(*this, outcome);
  }

  Handler handler_;
};

/// One call that may be repeated: a question, or a request that carries an idempotency key of its
/// own. Repetition decides, CallRunner carries it out.
///
/// A request that goes on (Call::goesOn()) ends when it is certain, not when its caller leaves. If
/// it may not be repeated as it is and its reply was lost, ChangeAgain comes first: from then on
/// its idempotency key is there, and without its idempotency key it does nothing, so that it takes
/// effect once however often and however late it is sent.
///
/// It is made by an object's call and passes no gate: it is about no hold. The caller is answered
/// once, by whoever is first to set `told_`: the caller when it leaves, or the thread that drives.
///
/// **Thread safety:** `told_` says whose the answer is; everything else belongs to the thread that
/// drives.
template <class T>
class QueryTask final : public Task<T> {
 public:
  using Base = Task<T>;
  using Clock = CallRunner::Clock;
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
        parse_(std::move(parse)),
        // In braces, for the order: only a call that was filled in says whether it goes on.
        repetition_{fillIn(compose),
                    this->goesOn(),
                    std::min(this->began_ + this->engine_->callTimeout(), until)} {
    this->deadline_ = repetition_.deadline();
    if (this->goesOn()) {
      this->engine_->closing().deliveryBegan();
    }
  }

  ~QueryTask() override {
    if (this->goesOn()) {
      this->engine_->closing().deliveryEnded();
    }
  }

  [[nodiscard]] bool mayBeRefused() const noexcept { return !repetition_.changes(); }

 private:
  using typename Base::Leave;
  using typename Base::Step;
  using Next = Repetition::Next;

  /// Returns whether it changes something.
  bool fillIn(const std::function<void(Call&, std::string_view owner)>& compose) {
    compose(*this, this->ownerField_);
    if (this->goesOn()) {
      return true;
    }
    // A composer marks a change that is safe to repeat. A question always is, so composers of
    // questions leave the mark out.
    const bool changes = this->repeatable();
    this->setRepeatable(true);
    return changes;
  }

  // CallRunner's hooks.

  Step replied() override { return tell(judge()); }

  Step failed(Outcome outcome) override {
    if (outcome.maybeExecuted) {
      repetition_.lost();
    }
    const Error& error = *outcome.error;
    const bool lapsed = this->delivery() == net::Request::Delivery::replied &&
                        this->reply().isError() && this->reply().text.starts_with("RLOCKLAPSED");
    // On its own thread the caller has not left, whatever the time.
    const bool onLoop = this->engine_->dispatcher().onLoopThread();
    const Repetition::Verdict verdict =
        repetition_.failed(error, lapsed, onLoop ? this->engine_->now() : Clock::time_point::min());
    Step step = Step::none;
    if (verdict.answer) {
      step = tell(this->describe(*verdict.answer));
    }
    return goOn(step == Step::finish ? verdict.next : verdict.nextIfLeft, step, error);
  }

  Step lost() override {
    if (!this->goesOn()) {
      return tell(late());
    }
    repetition_.lost();
    lostAt_ = this->submittedAt();
    prepareAgain();
    return Step::none;
  }

  /// The caller's time is over.
  Step leave(Leave /*why*/) override {
    const Step step = tell(late());
    return step == Step::finish ? Step::finishEarly : Step::none;
  }

  Step withoutMemory(bool /*executed*/) override { return tell(memoryError()); }

  Result<T> takeResult() override { return std::move(*outcome_); }

  // Answers.

  /// The caller is answered, unless it was before or has left.
  Step tell(Result<T> result) {
    if (told_.exchange(true)) {
      return Step::end;
    }
    outcome_.emplace(std::move(result));
    return Step::finish;
  }

  Result<T> judge() {
    std::optional<T> value = parse_(this->reply());
    if (!value) {
      return this->describe(Error(Errc::protocolError, "unexpected reply to a query"));
    }
    return std::move(*value);
  }

  Result<T> late() { return this->describe(repetition_.late(this->engine_->closed())); }

  // Going on.

  /// @param step  what the answer, if there was one to give, came to
  Step goOn(Next next, Step step, const Error& error) {
    switch (next) {
      case Next::over:
        return step;
      case Next::giveUp:
        return giveUp(error, step);
      case Next::prepare:
        prepareAgain();
        break;
      case Next::repeat:
        pause(error, [self = TaskPtr(this)] { self->again(); });
        break;
    }
    return step == Step::finish ? Step::finishEarly : Step::none;
  }

  void again() {
    this->engine_->dispatcher().start(Dispatcher::CallPtr(this),
                                      repetition_.sendBefore(this->engine_->now()));
  }

  /// It was sent at lostAt_, and has run or not.
  void prepareAgain() {
    const auto until = lostAt_ + trustedPart(this->engine_->idempotencyKeys()->life());
    this->engine_->dispatcher().start(
        makeIntrusive<ChangeAgain>(
            *this,
            [self = TaskPtr(this), until](const ChangeAgain& prepared, const Outcome& outcome) {
              self->guarded([&] { self->prepared(prepared, outcome, until); });
            }),
        until);
  }

  void prepared(const ChangeAgain& again, const Outcome& outcome, Clock::time_point until) {
    const bool done = outcome.kind == Outcome::Kind::replied;
    const auto now = this->engine_->now();
    if (done && now < until) {
      lostAt_ = again.submittedAt();
      this->setAgain();
      this->again();
      return;
    }
    const Error why =
        now >= until ? Error(Errc::timedOut,
                             "there was no answer while its idempotencyKey was certain to last")
                     : *outcome.error;
    if (!done && repetition_.notPrepared(why.errc(), now, until) == Next::prepare) {
      pause(why, [self = TaskPtr(this)] { self->prepareAgain(); });
    } else {
      this->perform(giveUp(why, Step::none));
    }
  }

  void pause(const Error& error, UniqueFunction<void()> then) {
    const Options& options = this->engine_->options();
    if (this->engine_->closed()) {
      if (repetition_.takeLastTry()) {
        then();
      } else {
        this->perform(giveUp(error, Step::none));
      }
      return;
    }
    const int attempt = repetition_.nextPause();
    const std::uint32_t random = spreadBits(static_cast<std::uint32_t>(attempt)) >> 8U;
    const auto wait = backoffPause(options.retryDelayMin, options.retryDelayMax, attempt, random);
    this->engine_->callbacks().callAt(this->engine_->now() + wait, std::move(then));
  }

  /// Returns what is left to do for the caller.
  Step giveUp(const Error& why, Step told) {
    const bool lost = repetition_.wasLost();
    const Step step =
        told == Step::finish ? told : tell(this->describe(lost ? repetition_.uncertain(why) : why));
    this->engine_->log().write(
        LogLevel::error,
        fmt::format("{} \"{}\": what was to be given back or counted is given up, {}: {}",
                    this->scripts_->noun(),
                    escapeForDisplay(this->scripts_->title()),
                    lost ? "and whether it took effect is not known" : "it took no effect",
                    why.what()));
    return step;
  }

  const Parse parse_;
  Repetition repetition_;
  /// The caller was told, or has left.
  Atomic<bool> told_{false};
  std::optional<Result<T>> outcome_;  // what it was told
  Clock::time_point lostAt_{};
};

}  // namespace rlock::detail
