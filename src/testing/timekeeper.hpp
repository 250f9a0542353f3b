// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace rlock::sim {

class TestLoop;

/// The time of a test: when it moves, and who has something to do before it may. All loops of its
/// clients, and the threads that wait in their calls, are known here. Time goes from one event to
/// the next, and each event's consequences are over before the next one.
///
/// One mutex guards it, the loops' queues and their timers; nothing is called with it held.
///
/// **Thread safety:** Safe to call concurrently from any thread, unless a method says otherwise.
class Timekeeper {
 public:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;

  /// @param runs      time passes by itself, too
  /// @param patience  how long the clients may work, in real time, before that is an error
  explicit Timekeeper(bool runs, std::chrono::nanoseconds patience = std::chrono::seconds(10));
  Timekeeper(const Timekeeper&) = delete;
  Timekeeper& operator=(const Timekeeper&) = delete;

  [[nodiscard]] TimePoint now() const noexcept;
  [[nodiscard]] std::chrono::nanoseconds elapsed() const noexcept { return now() - begin_; }

  // The test.

  /// Moves time, and has done what falls into it.
  /// @throws Error  wouldDeadlock on a thread of the library, timedOut when a callback of the
  ///                application does not return
  void advance(std::chrono::nanoseconds span);
  /// Has done what is to be done now.
  /// @throws Error  as advance()
  void settle();
  /// Returns when so many threads wait in calls, and nothing else goes on.
  /// @throws Error  as advance()
  void awaitSleepers(std::size_t count);

  // Threads that call.

  [[nodiscard]] bool passesByItself() const noexcept { return runs_; }
  /// The calling thread uses a client, if it is one of the application.
  void noteCaller() noexcept;
  /// The same, and a call begins.
  void noteCall() noexcept;
  /// As Env::sleep().
  /// @param loop     whose clients the call belongs to
  void sleep(TestLoop& loop,
             const std::atomic<std::uint32_t>& word,
             std::uint32_t expected,
             TimePoint deadline) noexcept;
  void wakeOne(const std::atomic<std::uint32_t>* word) noexcept;
  /// A thread of the library's own begins or ends.
  void countHelper(int change) noexcept;

  // Loops, which hold the mutex.

  [[nodiscard]] detail::AnnotatedMutex& mutex() noexcept
      RLOCK_THREAD_ATTRIBUTE(lock_returned(mutex_)) {
    return mutex_;
  }
  void add(TestLoop& loop) RLOCK_REQUIRES(mutex_) { loops_.push_back(&loop); }
  void remove(TestLoop& loop) noexcept RLOCK_REQUIRES(mutex_) { std::erase(loops_, &loop); }
  void changed() noexcept RLOCK_REQUIRES(mutex_) { changed_.notify_all(); }
  /// Waits until something has changed, or it is `until`.
  void wait(TimePoint until) RLOCK_REQUIRES(mutex_);
  /// The same by the system's clock.
  void waitReally(Clock::time_point until) RLOCK_REQUIRES(mutex_) {
    changed_.wait_until(mutex_, until);
  }
  /// Up to when timers may expire without a turn of their own.
  [[nodiscard]] TimePoint passed() const noexcept { return runs_ ? now() : TimePoint::min(); }

 private:
  struct Sleeper {
    const std::atomic<std::uint32_t>* word;
    TimePoint deadline;
    bool woken = false;
    bool moves = false;  ///< it moves time itself meanwhile
    std::thread::id thread{};
  };
  struct Awake {
    std::thread::id thread;
    Clock::time_point since;  ///< it has left sleep(), or was told to
  };

  /// False: it is a thread of the library.
  bool note() noexcept RLOCK_REQUIRES(mutex_);
  [[nodiscard]] bool onlyCaller() const noexcept RLOCK_REQUIRES(mutex_);
  void begin() RLOCK_REQUIRES(mutex_);
  [[nodiscard]] bool idle() const noexcept RLOCK_REQUIRES(mutex_);
  [[nodiscard]] std::optional<Clock::time_point> graceEnds() noexcept RLOCK_REQUIRES(mutex_);
  bool settle(const Sleeper* but) RLOCK_REQUIRES(mutex_);
  [[nodiscard]] TimePoint next() const noexcept RLOCK_REQUIRES(mutex_);
  void moveTo(TimePoint when) noexcept RLOCK_REQUIRES(mutex_);
  bool step(TimePoint when, const Sleeper* but) RLOCK_REQUIRES(mutex_);
  bool skip(Sleeper& sleeper) RLOCK_REQUIRES(mutex_);
  void wake(Sleeper& sleeper) noexcept RLOCK_REQUIRES(mutex_);
  void hint(Clock::time_point since) noexcept RLOCK_REQUIRES(mutex_);

  const bool runs_;
  const std::chrono::nanoseconds patience_;
  const TimePoint begin_;
  std::atomic<std::int64_t> ahead_{
      0};  ///< ns: of the real clock, or of begin_ if time stands still
  detail::AnnotatedMutex mutex_;
  std::condition_variable_any changed_;
  std::vector<TestLoop*> loops_ RLOCK_GUARDED_BY(mutex_);
  std::list<Sleeper> sleepers_ RLOCK_GUARDED_BY(mutex_);
  /// Woken, and not asleep again yet.
  std::vector<Awake> awake_ RLOCK_GUARDED_BY(mutex_);
  std::thread::id caller_ RLOCK_GUARDED_BY(mutex_){};
  bool manyCallers_ RLOCK_GUARDED_BY(mutex_) = false;
  bool moving_ RLOCK_GUARDED_BY(mutex_) = false;
  int helpers_ RLOCK_GUARDED_BY(mutex_) = 0;
  bool hinted_ RLOCK_GUARDED_BY(mutex_) = false;
  /// Since the last call began.
  std::chrono::nanoseconds skipped_ RLOCK_GUARDED_BY(mutex_){0};
};

}  // namespace rlock::sim
