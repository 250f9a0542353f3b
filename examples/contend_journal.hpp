// SPDX-License-Identifier: Apache-2.0
// The processes of the demonstration share this: a board in shared memory that survives kill -9,
// a journal per worker, and the counter that only the lock protects.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

namespace contend {

/// CLOCK_MONOTONIC, which all processes of a machine share.
using Nanoseconds = std::int64_t;

inline Nanoseconds now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * Nanoseconds{1'000'000'000} + time.tv_nsec;
}

constexpr int kMaxWorkers = 65;  // and one of them in place of the killed one

enum class Phase : std::uint32_t {
  starting,
  outside,  ///< pauses, waits for the lock, or gives it back
  inside,   ///< has read the counter and not yet written it
};

/// Where one worker is. Written by it alone.
struct Slot {
  std::atomic<Phase> phase;
  std::atomic<std::uint64_t> value;      ///< what it read from the counter
  std::atomic<std::uint64_t> completed;  ///< increments
  std::atomic<Nanoseconds> enteredAt;    ///< the last time it got the lock
};

struct Board {
  std::atomic<bool> go;
  std::atomic<bool> stop;
  std::array<Slot, kMaxWorkers> slots;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free,
              "atomics must work across processes");

/// One hold of the lock, written before the lock is given back.
struct Entry {
  std::uint64_t value = 0;     ///< the counter as read; value + 1 was written
  std::uint64_t wrote = 0;     ///< 0: the hold was lost before the write, so there was none
  Nanoseconds askedAt = 0;     ///< the lock was asked for
  Nanoseconds enteredAt = 0;   ///< the lock was obtained
  Nanoseconds releasedAt = 0;  ///< the release was about to begin
};

/// The files of one demonstration.
class Journal {
 public:
  /// Creates the files in an empty directory.
  static void create(const std::filesystem::path& directory);

  explicit Journal(std::filesystem::path directory);
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  ~Journal();

  [[nodiscard]] Board& board() const { return *board_; }
  [[nodiscard]] Slot& slot(int worker) const;

  /// Nothing makes a read and a write together atomic.
  [[nodiscard]] std::uint64_t readCounter() const;
  void writeCounter(std::uint64_t value) const;

  void append(int worker, const Entry& entry);
  [[nodiscard]] std::vector<Entry> entries(int worker) const;

 private:
  [[nodiscard]] std::string fileOf(int worker) const;

  std::filesystem::path directory_;
  Board* board_ = nullptr;
  int counter_ = -1;
  int own_ = -1;
};

}  // namespace contend
