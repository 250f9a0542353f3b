// SPDX-License-Identifier: Apache-2.0
#include "testing/timekeeper.hpp"

#include "testing/test_loop.hpp"
#include <rlock/error.hpp>

#include <algorithm>
#include <cstdio>

namespace rlock::sim {

namespace {

using std::chrono::nanoseconds;

/// How long a thread that was woken may take to wait again, after which it counts as gone from the
/// call. In real time, as the next one.
constexpr std::chrono::milliseconds kGrace{5};
/// A call waits that long before the test is told that time stands still.
constexpr std::chrono::seconds kHintAfter{1};
/// A call without a limit moves time no further than that.
constexpr std::chrono::hours kLongestSkip{1};

}  // namespace

Timekeeper::Timekeeper(bool runs, nanoseconds patience)
    : runs_(runs), patience_(patience), begin_(Clock::now()) {}

Timekeeper::TimePoint Timekeeper::now() const noexcept {
  return (runs_ ? Clock::now() : begin_) + nanoseconds(ahead_.load(std::memory_order_acquire));
}

// The test.

void Timekeeper::advance(nanoseconds span) {
  const detail::MutexLock lock(mutex_);
  begin();
  const TimePoint target =
      span > TimePoint::max() - now() ? TimePoint::max() : now() + std::max(span, nanoseconds(0));
  bool done = settle(nullptr);
  while (done) {
    const TimePoint when = next();
    if (when >= target) {
      done = step(target, nullptr);
      break;
    }
    done = step(when, nullptr);
  }
  moving_ = false;
  changed();
  if (!done) {
    throw Error(Errc::timedOut, "the clients still work: a callback has not returned");
  }
}

void Timekeeper::settle() {
  const detail::MutexLock lock(mutex_);
  begin();
  const bool done = settle(nullptr);
  moving_ = false;
  changed();
  if (!done) {
    throw Error(Errc::timedOut, "the clients still work: a callback has not returned");
  }
}

void Timekeeper::awaitSleepers(std::size_t count) {
  const detail::MutexLock lock(mutex_);
  begin();
  const auto asleep = [this]() RLOCK_REQUIRES(mutex_) {
    return static_cast<std::size_t>(std::count_if(
        sleepers_.begin(), sleepers_.end(), [](const Sleeper& each) { return !each.woken; }));
  };
  const auto limit = Clock::now() + patience_;
  bool done = settle(nullptr);
  while (done && asleep() < count) {
    changed_.wait_until(mutex_, limit);
    done = settle(nullptr) && Clock::now() < limit;
  }
  moving_ = false;
  changed();
  if (!done) {
    throw Error(Errc::timedOut, "fewer calls wait than were expected to");
  }
}

/// One thread moves time.
void Timekeeper::begin() {
  if (TestLoop::ofThisThread() != nullptr || TestLoop::helperThread()) {
    throw Error(Errc::wouldDeadlock, "a callback cannot move the time: it is what time waits for");
  }
  note();
  changed_.wait(mutex_, [this]() RLOCK_REQUIRES(mutex_) { return !moving_; });
  moving_ = true;
}

/// Whether nothing happens unless time moves. Threads of the application are not known, but for
/// those that wait in a call.
bool Timekeeper::idle() const noexcept {
  return helpers_ == 0 &&
         std::none_of(
             loops_.begin(), loops_.end(), [](const TestLoop* loop) { return loop->busy(); }) &&
         std::none_of(sleepers_.begin(), sleepers_.end(), [](const Sleeper& sleeper) {
           return sleeper.woken && !sleeper.moves;
         });
}

/// Until when a thread that was woken may still come back.
std::optional<Timekeeper::Clock::time_point> Timekeeper::graceEnds() noexcept {
  const auto now = Clock::now();
  std::erase_if(awake_, [now](const Awake& awake) { return now >= awake.since + kGrace; });
  if (awake_.empty()) {
    return std::nullopt;
  }
  return awake_.front().since + kGrace;
}

/// False: it takes too long.
bool Timekeeper::settle(const Sleeper* but) {
  const auto limit = Clock::now() + patience_;
  while (but == nullptr || !but->woken) {
    if (!idle()) {
      if (changed_.wait_until(mutex_, limit) == std::cv_status::timeout) {
        return idle();
      }
    } else if (const auto grace = graceEnds()) {
      changed_.wait_until(mutex_, *grace);
    } else {
      break;
    }
  }
  return true;
}

/// When the next thing is due; max(): nothing is.
Timekeeper::TimePoint Timekeeper::next() const noexcept {
  TimePoint first = TimePoint::max();
  for (const TestLoop* const loop : loops_) {
    first = std::min(first, loop->firstDue());
  }
  for (const Sleeper& sleeper : sleepers_) {
    first = std::min(first, sleeper.deadline);
  }
  return first;
}

void Timekeeper::moveTo(TimePoint when) noexcept {
  if (const auto span = when - now(); span > nanoseconds(0)) {
    ahead_.fetch_add(span.count(), std::memory_order_acq_rel);
  }
}

/// Goes to that time. The loops have their turns one after the other, so that what they do comes in
/// one order.
bool Timekeeper::step(TimePoint when, const Sleeper* but) {
  moveTo(when);
  for (std::size_t i = 0; i < loops_.size(); ++i) {
    loops_[i]->reach(when);
    changed();
    if (!settle(but)) {
      return false;
    }
  }
  for (Sleeper& sleeper : sleepers_) {
    if (sleeper.deadline <= when) {
      wake(sleeper);
    }
  }
  changed();
  return settle(but);
}

// Threads that call.

bool Timekeeper::note() noexcept {
  if (TestLoop::ofThisThread() != nullptr || TestLoop::helperThread()) {
    return false;
  }
  const auto self = std::this_thread::get_id();
  if (caller_ == std::thread::id()) {
    caller_ = self;
  }
  manyCallers_ = manyCallers_ || caller_ != self;
  return true;
}

void Timekeeper::noteCaller() noexcept {
  const detail::MutexLock lock(mutex_);
  note();
}

void Timekeeper::noteCall() noexcept {
  const detail::MutexLock lock(mutex_);
  if (note()) {
    skipped_ = nanoseconds(0);
  }
}

bool Timekeeper::onlyCaller() const noexcept {
  return !manyCallers_ && caller_ == std::this_thread::get_id();
}

/// Moves time to the next event, if that is the only way on: the thread that waits is the only one
/// that calls, so nobody else can end its wait. False: it has to wait.
bool Timekeeper::skip(Sleeper& sleeper) {
  if (runs_ || moving_ || !idle() ||
      (sleeper.deadline == TimePoint::max() && skipped_ >= kLongestSkip)) {
    return false;
  }
  const TimePoint when = next();
  if (when == TimePoint::max()) {
    return false;
  }
  skipped_ += std::max(when - now(), Clock::duration(0));
  moving_ = true;
  sleeper.moves = true;
  step(when, &sleeper);
  sleeper.moves = false;
  moving_ = false;
  changed();
  return true;
}

void Timekeeper::sleep(TestLoop& loop,
                       const std::atomic<std::uint32_t>& word,
                       std::uint32_t expected,
                       TimePoint deadline) noexcept {
  const auto begun = Clock::now();
  TestLoop* const own = TestLoop::ofThisThread();
  const detail::MutexLock lock(mutex_);
  note();
  const auto self = std::this_thread::get_id();
  std::erase_if(awake_, [self](const Awake& awake) { return awake.thread == self; });
  const auto sleeper = sleepers_.insert(sleepers_.end(), {&word, deadline});
  sleeper->thread = self;
  const TestLoop::Blocked blocked(own);
  changed();
  while (!sleeper->woken && word.load(std::memory_order_acquire) == expected && now() < deadline) {
    if ((loop.closing() || onlyCaller()) && skip(*sleeper)) {
      continue;
    }
    if (runs_) {
      wait(deadline);
    } else if (changed_.wait_until(mutex_, begun + kHintAfter) == std::cv_status::timeout) {
      hint(begun);
      changed_.wait_for(mutex_, kHintAfter);
    }
  }
  sleepers_.erase(sleeper);
  // On a busy machine it has taken the thread a while to get here.
  for (Awake& awake : awake_) {
    if (awake.thread == self) {
      awake.since = Clock::now();
    }
  }
  changed();
}

void Timekeeper::wakeOne(const std::atomic<std::uint32_t>* word) noexcept {
  const detail::MutexLock lock(mutex_);
  const auto found = std::find_if(sleepers_.begin(), sleepers_.end(), [word](const Sleeper& each) {
    return each.word == word && !each.woken;
  });
  if (found != sleepers_.end()) {
    wake(*found);
    changed();
  }
}

void Timekeeper::wake(Sleeper& sleeper) noexcept {
  if (!sleeper.woken) {
    sleeper.woken = true;
    if (!sleeper.moves) {
      awake_.push_back({sleeper.thread, Clock::now()});
    }
  }
}

void Timekeeper::countHelper(int change) noexcept {
  const detail::MutexLock lock(mutex_);
  helpers_ += change;
  changed();
}

void Timekeeper::wait(TimePoint until) {
  if (!runs_ || until == TimePoint::max()) {
    changed_.wait(mutex_);
    return;
  }
  changed_.wait_until(mutex_, until - nanoseconds(ahead_.load(std::memory_order_acquire)));
}

/// A test that hangs should say why.
void Timekeeper::hint(Clock::time_point since) noexcept {
  if (moving_ || hinted_ || Clock::now() - since < kHintAfter) {
    return;
  }
  hinted_ = true;
  std::fputs(
      "rlock: a call waits for another client or for its time limit, and the time of this test "
      "stands still: let another thread release the lock or call TestClock::advance(), or use "
      "TestTime::real\n",
      stderr);
}

}  // namespace rlock::sim
