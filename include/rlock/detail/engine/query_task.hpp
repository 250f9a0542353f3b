// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/base/backoff.hpp>
#include <rlock/detail/base/random_bits.hpp>
#include <rlock/detail/engine/repetition.hpp>
#include <rlock/detail/engine/task.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>
#include <rlock/detail/executor/publish_refusal.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// Prepares a change whose reply was lost for being asked for again.
class ChangeAgain final : public Call {
 public:
  using Handler = UniqueFunction<void(const ChangeAgain&, const Outcome&)>;

  ChangeAgain(const Call& change, Handler handler);

 private:
  void finished(Outcome outcome) noexcept override {
    std::exchange(handler_, nullptr)(*this, outcome);
  }

  Handler handler_;
};

inline ChangeAgain::ChangeAgain(const Call& change, Handler handler)
    : handler_(std::move(handler)) {
  const auto idempotencyKey = change.idempotencyKey();
  const std::string_view number = idempotencyKey[1];
  setScript(lua::change_again, 1);
  addArgument(store(idempotencyKey[0]));
  addArgument(store(number.substr(0, number.find('!'))));
  addArgument(store(idempotencyKey[2]));
  setRepeatable(true);
  setFreesMemory(true);
}

/// One call that may be repeated: a question, or a request that carries an idempotency key of its
/// own. Repetition decides, CallRunner carries it out.
///
/// A request that goes on (Call::goesOn()) ends when it is certain, not when its caller leaves. If
/// it may not be repeated as it is and its reply was lost, ChangeAgain comes first: from then on
/// its idempotency key is there, and without its idempotency key it does nothing, so that it takes
/// effect once however often and however late it is sent. Where there is no memory for a step of
/// that, the step is tried at once again.
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
  /// There is no answer to a request that does not go on. Before the caller hears of it, on any
  /// thread, and perhaps while the answer is being read; it must not throw.
  /// @param notDone  it certainly took no effect, and will take none
  using Unanswered = std::function<void(bool notDone)>;

  /// @param compose  fills in the call; what it refers to must be owned by the task: use
  /// Call::store()
  /// @param until    a limit beside callTimeout, for one of several calls
  QueryTask(std::shared_ptr<LockEngine> engine,
            std::shared_ptr<const LockScripts> scripts,
            OwnerId owner,
            const std::function<void(Call&, std::string_view owner)>& compose,
            Parse parse,
            Clock::time_point until = Clock::time_point::max(),
            Unanswered unanswered = {});

  ~QueryTask() override {
    if (this->goesOn()) {
      this->engine_->closing().deliveryEnded();
    }
  }

  /// It is one of several requests that are one operation of the application, and not the first.
  void setFurther() noexcept { further_ = true; }
  [[nodiscard]] bool mayBeRefused() const noexcept { return !repetition_.changes() && !further_; }

 private:
  using typename Base::Leave;
  using typename Base::Step;
  using Next = Repetition::Next;

  /// Returns whether it changes something.
  bool fillIn(const std::function<void(Call&, std::string_view owner)>& compose);

  // CallRunner's hooks.

  Step replied() override { return tell(judge()); }
  Step failed(Outcome outcome) override;
  Step lost() override;
  /// The caller's time is over.
  Step leave(Leave /*why*/) override;
  Step withoutMemory(bool /*executed*/) override;
  Result<T> takeResult() override { return std::move(*outcome_); }

  // Answers.

  /// The caller is answered, unless it was before or has left.
  Step tell(Result<T> result);
  /// The caller has its answer before the next step, which may fail. On its own thread it has an
  /// exception otherwise.
  /// @param rest  what is left to do for a caller that has its answer
  Step answerFirst(Step step, Step rest);
  Result<T> judge();
  void noAnswer(bool notDone) {
    if (unanswered_) {
      unanswered_(notDone);
    }
  }
  Result<T> late() { return this->describe(repetition_.late(this->engine_->closed())); }

  // Going on.

  /// @param step  what the answer, if there was one to give, came to
  Step goOn(Next next, Step step, const Error& error);
  void proceed();
  /// There is no memory to wait with.
  void hurry() noexcept;
  void again();
  /// Whether the lost request has run is found out while its key, of lostAt_, cannot have lapsed.
  void prepareAgain();
  void prepared(const ChangeAgain& again, const Outcome& outcome, Clock::time_point until);
  void pause(const Error& error);
  /// Returns what is left to do for the caller.
  Step giveUp(const Error& why, Step told);

  const Parse parse_;
  const Unanswered unanswered_;
  Repetition repetition_;
  /// The caller was told, or has left.
  Atomic<bool> told_{false};
  std::optional<Result<T>> outcome_;  // what it was told
  /// Since when the idempotency key, if the change has run, lasts: a repetition that was lost may
  /// never have come, and so makes it no younger than the latest ChangeAgain did.
  Clock::time_point lostAt_{};
  bool further_ = false;     // it is not refused for too much work
  bool kept_ = false;        // by a ChangeAgain
  bool notDone_ = false;     // the latest request was certainly not executed
  bool unprepared_ = false;  // ChangeAgain comes before the next one
  bool goingOn_ = false;     // there is to be a next one, which nothing has begun
  bool hurries_ = false;     // the next one is being sent without a pause
};

template <class T>
QueryTask<T>::QueryTask(std::shared_ptr<LockEngine> engine,
                        std::shared_ptr<const LockScripts> scripts,
                        OwnerId owner,
                        const std::function<void(Call&, std::string_view owner)>& compose,
                        Parse parse,
                        Clock::time_point until,
                        Unanswered unanswered)
    : Base(std::move(engine), std::move(scripts), owner),
      parse_(std::move(parse)),
      unanswered_(std::move(unanswered)),
      // In braces, for the order: only a call that was filled in says whether it goes on.
      repetition_{fillIn(compose),
                  this->goesOn(),
                  std::min(this->began_ + this->engine_->callTimeout(), until)} {
  this->deadline_ = repetition_.deadline();
  if (this->goesOn()) {
    this->engine_->closing().deliveryBegan();
  }
}

template <class T>
bool QueryTask<T>::fillIn(const std::function<void(Call&, std::string_view owner)>& compose) {
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

template <class T>
typename QueryTask<T>::Step QueryTask<T>::failed(Outcome outcome) {
  if (outcome.maybeExecuted) {
    repetition_.lost();
  }
  noAnswer(!repetition_.wasLost());
  notDone_ = true;
  goingOn_ = this->goesOn() && told_.load();
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
  const Next next = step == Step::finish ? verdict.next : verdict.nextIfLeft;
  goingOn_ = next == Next::repeat || next == Next::prepare;
  return goOn(next, next == Next::over ? step : answerFirst(step, Step::none), error);
}

template <class T>
typename QueryTask<T>::Step QueryTask<T>::lost() {
  if (!this->goesOn()) {
    noAnswer(false);
    return tell(late());
  }
  repetition_.lost();
  if (!kept_) {
    lostAt_ = this->submittedAt();
  }
  unprepared_ = true;
  goingOn_ = true;
  prepareAgain();
  return Step::none;
}

template <class T>
typename QueryTask<T>::Step QueryTask<T>::leave(Leave /*why*/) {
  const Step step = tell(late());
  if (step != Step::finish) {
    return Step::none;
  }
  // The request goes on, and what is heard of it later is not waited for.
  noAnswer(false);
  return Step::finishEarly;
}

template <class T>
typename QueryTask<T>::Step QueryTask<T>::withoutMemory(bool /*executed*/) {
  noAnswer(false);
  if (!this->engine_->dispatcher().onLoopThread()) {
    // Its caller gets an exception, whoever drives.
    return tell(memoryError());
  }
  const bool open = repetition_.wasLost() || !notDone_;
  if (goingOn_) {
    hurry();
  }
  return told_.load() ? Step::end
                      : tell(open ? repetition_.uncertain(memoryError()) : memoryError());
}

// Answers.

template <class T>
typename QueryTask<T>::Step QueryTask<T>::tell(Result<T> result) {
  if (told_.exchange(true)) {
    return Step::end;
  }
  outcome_.emplace(std::move(result));
  return Step::finish;
}

template <class T>
typename QueryTask<T>::Step QueryTask<T>::answerFirst(Step step, Step rest) {
  if (step != Step::finish || !this->engine_->dispatcher().onLoopThread()) {
    return step;
  }
  this->perform(Step::finishEarly);
  return rest;
}

template <class T>
Result<T> QueryTask<T>::judge() {
  std::optional<T> value = parse_(this->reply());
  if (!value) {
    noAnswer(false);
    return this->describe(Error(Errc::protocolError, "unexpected reply to a query"));
  }
  if (this->publishes()) {
    this->engine_->outages().untold(*this->scripts_, publishRefusal(this->reply()));
  }
  return std::move(*value);
}

// Going on.

template <class T>
typename QueryTask<T>::Step QueryTask<T>::goOn(Next next, Step step, const Error& error) {
  switch (next) {
    case Next::over:
      return step;
    case Next::giveUp:
      return giveUp(error, step);
    case Next::prepare:
      unprepared_ = true;
      prepareAgain();
      break;
    case Next::repeat:
      pause(error);
      break;
  }
  return step == Step::finish ? Step::finishEarly : Step::none;
}

template <class T>
void QueryTask<T>::proceed() {
  if (unprepared_) {
    prepareAgain();
  } else {
    again();
  }
}

template <class T>
void QueryTask<T>::hurry() noexcept {
  try {
    if (!std::exchange(hurries_, true)) {
      proceed();
      hurries_ = false;
      return;
    }
  } catch (const std::bad_alloc&) {
  }
  goingOn_ = false;
  hurries_ = false;
  this->engine_->log().write(LogLevel::error,
                             "what was to be given back or counted is given up: no memory");
}

template <class T>
void QueryTask<T>::again() {
  notDone_ = false;
  goingOn_ = false;
  this->engine_->dispatcher().start(Dispatcher::CallPtr(this),
                                    repetition_.sendBefore(this->engine_->now()));
}

template <class T>
void QueryTask<T>::prepareAgain() {
  const auto until = lostAt_ + trustedPart(this->engine_->idempotencyKeys()->life());
  auto again = makeIntrusive<ChangeAgain>(
      *this, [self = TaskPtr(this), until](const ChangeAgain& prepared, const Outcome& outcome) {
        self->guarded([&] { self->prepared(prepared, outcome, until); });
      });
  goingOn_ = false;
  this->engine_->dispatcher().start(std::move(again), until);
}

template <class T>
void QueryTask<T>::prepared(const ChangeAgain& again,
                            const Outcome& outcome,
                            Clock::time_point until) {
  const bool done = outcome.kind == Outcome::Kind::replied;
  const auto now = this->engine_->now();
  goingOn_ = true;
  if (done && now < until) {
    lostAt_ = again.submittedAt();
    kept_ = true;
    this->setAgain();
    unprepared_ = false;
    this->again();
    return;
  }
  const Error why = now >= until
                        ? Error(Errc::timedOut,
                                "there was no answer while its idempotencyKey was certain to last")
                        : *outcome.error;
  if (!done && repetition_.notPrepared(why.errc(), now, until) == Next::prepare) {
    pause(why);
  } else {
    this->perform(giveUp(why, Step::none));
  }
}

template <class T>
void QueryTask<T>::pause(const Error& error) {
  const Options& options = this->engine_->options();
  if (this->engine_->closed()) {
    if (repetition_.takeLastTry()) {
      proceed();
    } else {
      this->perform(giveUp(error, Step::none));
    }
    return;
  }
  const int attempt = repetition_.nextPause();
  const auto random = static_cast<std::uint32_t>(randomBits());
  const auto wait = backoffPause(options.retryDelayMin, options.retryDelayMax, attempt, random);
  this->engine_->callbacks().callAt(this->engine_->now() + wait, [self = TaskPtr(this)] {
    self->goingOn_ = true;
    self->guarded([&] { self->proceed(); });
  });
  goingOn_ = false;
}

template <class T>
typename QueryTask<T>::Step QueryTask<T>::giveUp(const Error& why, Step told) {
  goingOn_ = false;
  const bool lost = repetition_.wasLost();
  Step step = told;
  if (step != Step::finish) {
    step = told_.load() ? Step::end : tell(this->describe(lost ? repetition_.uncertain(why) : why));
  }
  step = answerFirst(step, Step::end);
  this->engine_->log().write(
      LogLevel::error,
      fmt::format("{} \"{}\": what was to be given back or counted is given up, {}: {}",
                  this->scripts_->noun(),
                  escapeForDisplay(this->scripts_->title()),
                  lost ? "and whether it took effect is not known" : "it took no effect",
                  why.what()));
  return step;
}

}  // namespace rlock::detail
