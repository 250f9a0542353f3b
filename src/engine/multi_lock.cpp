// SPDX-License-Identifier: Apache-2.0
#include "engine/multi_lock.hpp"

#include "engine/task.hpp"
#include <rlock/detail/engine/multi_fsm.hpp>

#include <algorithm>
#include <utility>

namespace rlock::detail {

namespace {

/// One acquisition: performs what MultiFsm says.
class MultiAcquire final : public GroupAcquire {
 public:
  MultiAcquire(std::shared_ptr<GroupLock> group, AcquireParams params, Done done)
      : GroupAcquire(std::move(group), std::move(params), std::move(done)),
        fsm_(group_->members().size(), oneAttempt()) {}

  void expire() override {
    perform(tell([](MultiFsm& fsm) { return fsm.expired(lateError()); }));
    endRound();
  }

 private:
  using Step = MultiFsm::Step;

  void begin() override {
    perform(tell([](MultiFsm& fsm) { return fsm.start(); }));
  }

  void stopped() override {
    perform(tell([](MultiFsm& fsm) { return fsm.stopped(stopError()); }));
    endRound();
  }

  template <class Event>
  Step tell(Event event) {
    const std::lock_guard lock(mutex_);
    return event(fsm_);
  }

  [[nodiscard]] std::shared_ptr<MultiAcquire> self() {
    return std::static_pointer_cast<MultiAcquire>(shared_from_this());
  }
  [[nodiscard]] bool timeLeft() const { return !oneAttempt() && Clock::now() < deadline_; }

  void perform(Step step) {
    switch (step) {
      case Step::none:
      case Step::end:
        return;
      case Step::take:
        take();
        return;
      case Step::giveBack:
        giveBack();
        return;
      case Step::finish:
      case Step::finishEarly:
        tellCaller();
        return;
    }
  }

  struct Patience {
    Duration wait = Duration::zero();
    bool cut = false;  ///< it is shorter than what the caller would wait
  };

  /// How long the next member may be waited for. While others are held with a lease of their own
  /// not much of that may be waited away, or the caller would get a hold that is nearly over.
  [[nodiscard]] Patience patience() {
    Patience result;
    if (oneAttempt()) {
      return result;
    }
    const auto now = Clock::now();
    result.wait = endless() ? Duration::max() : Duration(deadline_ - now);
    if (params_.lease && !handles_.empty()) {
      auto until = Clock::time_point::max();
      for (const auto& handle : handles_) {
        until = std::min(until, handle->validUntil());
      }
      Duration budget(until - now - params_.lease->nanoseconds() / 2);
      if (hurried_ || budget < Duration(kReplyGrace)) {
        budget = Duration::zero();
      }
      if (budget < result.wait) {
        result = {budget, true};
      }
    }
    return result;
  }

  void take() {
    std::size_t member = 0;
    Patience patience;
    std::stop_token stop;
    {
      const std::lock_guard lock(mutex_);
      member = fsm_.next();
      if (member == 0) {
        round_ = std::stop_source();
        ++rounds_;
        lostOne_ = false;
        if (ended_) {
          round_.request_stop();
        }
      }
      stop = round_.get_token();
      patience = this->patience();
    }
    if (!oneAttempt() && !patience.cut && !patience.wait.isPositive()) {
      perform(tell([](MultiFsm& fsm) { return fsm.refused(false); }));
      return;
    }
    AcquireParams params = memberParams(std::move(stop));
    params.wait = patience.wait;
    group_->members()[member]->acquireAsync(
        std::move(params), [self = self(), cut = patience.cut](Result<Acquired> result) {
          self->perform(self->answered(std::move(result), cut));
        });
  }

  Step answered(Result<Acquired> result, bool cut) {
    if (!result.has_value()) {
      return failed(result.error(), cut);
    }
    if (!*result) {
      const std::lock_guard lock(mutex_);
      hurried_ = false;
      return fsm_.refused(timeLeft());
    }
    const IntrusivePtr<HoldHandle> handle = (*result)->hold;
    const Step step = granted(handle);
    if (step == Step::take) {
      hearOfLoss(*handle);
    }
    return step;
  }

  Step granted(const IntrusivePtr<HoldHandle>& handle) {
    const std::lock_guard lock(mutex_);
    handles_.push_back(handle);
    const auto now = Clock::now();
    const bool valid = std::all_of(
        handles_.begin(), handles_.end(), [&](const auto& each) { return each->heldAt(now); });
    const Step step = fsm_.granted(valid);
    if (step == Step::finish) {
      hold_ = group_->book(handles_, terms());
    }
    return step;
  }

  /// Waiting for further members is in vain when one that is held is lost.
  void hearOfLoss(const HoldHandle& handle) {
    std::uint64_t round = 0;
    {
      const std::lock_guard lock(mutex_);
      round = rounds_;
    }
    std::list<StopListener> listener;
    listener.emplace_back(handle.lostToken(), [weak = weak_from_this(), round] {
      if (const auto self = weak.lock()) {
        static_cast<MultiAcquire&>(*self).lostOne(round);
      }
    });
    const std::lock_guard lock(mutex_);
    listeners_.splice(listeners_.end(), listener);
  }

  void lostOne(std::uint64_t round) {
    std::optional<std::stop_source> current;
    {
      const std::lock_guard lock(mutex_);
      if (round != rounds_) {
        return;
      }
      lostOne_ = true;
      current.emplace(round_);
    }
    current->request_stop();
  }

  Step failed(const Error& error, bool cut) {
    const std::lock_guard lock(mutex_);
    if (error.errc() == Errc::cancelled && lostOne_) {
      return fsm_.lost();
    }
    if (error.errc() == Errc::timedOut && cut) {
      // It may only be slow: next time its answer is waited for, whatever it says.
      hurried_ = true;
      return fsm_.refused(timeLeft());
    }
    return fsm_.failed(error);
  }

  void giveBack() {
    HoldHandles handles;
    std::list<StopListener> listeners;
    {
      const std::lock_guard lock(mutex_);
      handles.swap(handles_);
      listeners.swap(listeners_);
    }
    // With no lock held: whoever is just calling is waited for.
    listeners.clear();
    const auto left = std::make_shared<std::atomic<std::size_t>>(handles.size());
    for (std::size_t i = 0; i < handles.size(); ++i) {
      group_->members()[i]->releaseAsync(
          params_.owner, [self = self(), left](const Result<ReleaseOutcome>& /*result*/) {
            if (--*left == 0) {
              self->perform(
                  self->tell([&](MultiFsm& fsm) { return fsm.givenBack(self->timeLeft()); }));
            }
          });
    }
    // The releases have limits of their own, which the caller need not wait for.
    armLimit();
  }

  /// Ends waiting for a member.
  void endRound() {
    std::optional<std::stop_source> round;
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      round.emplace(round_);
    }
    round->request_stop();
  }

  void tellCaller() {
    MultiFsm::Result outcome{};
    std::optional<Error> error;
    IntrusivePtr<GroupHold> hold;
    std::list<StopListener> listeners;
    {
      const std::lock_guard lock(mutex_);
      listeners.swap(listeners_);
      outcome = fsm_.result();
      error = fsm_.error();
      hold = hold_;
    }
    listeners.clear();
    switch (outcome) {
      case MultiFsm::Result::granted:
        hold->listen();
        conclude(Acquired(Grant{hold, std::nullopt}));
        return;
      case MultiFsm::Result::refused:
        conclude(Acquired());
        return;
      case MultiFsm::Result::failed:
      case MultiFsm::Result::pending:
        conclude(error.value_or(Error(Errc::serverError, "no outcome")));
        return;
    }
  }

  MultiFsm fsm_;                       // protected by mutex_
  HoldHandles handles_;                // of the members taken; protected by mutex_
  std::stop_source round_;             // protected by mutex_
  bool ended_ = false;                 // the caller has left; protected by mutex_
  bool lostOne_ = false;               // protected by mutex_
  bool hurried_ = false;               // protected by mutex_
  std::uint64_t rounds_ = 0;           // protected by mutex_
  std::list<StopListener> listeners_;  // protected by mutex_
  IntrusivePtr<GroupHold> hold_;       // protected by mutex_
};

}  // namespace

MultiLock::MultiLock(Members members) : GroupLock("multi", members, members.size()) {}

AcquireParams MultiLock::forMember(const AcquireParams& params) const {
  return params;
}

GroupHold::Terms MultiLock::terms(const AcquireParams& params) const {
  GroupHold::Terms terms;
  terms.owner = params.owner;
  terms.label = params.label;
  if (params.lease) {
    terms.lease = params.lease->ceilMilliseconds();
  }
  // The members keep the rest, each by itself.
  return terms;
}

std::shared_ptr<GroupAcquire> MultiLock::makeAcquire(AcquireParams params,
                                                     GroupAcquire::Done done) {
  return std::make_shared<MultiAcquire>(shared_from_this(), std::move(params), std::move(done));
}

}  // namespace rlock::detail
