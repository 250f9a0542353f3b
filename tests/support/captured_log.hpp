// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/eventually.hpp"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::test {

/// Collects log lines; hook() fits any `std::function<void(Level, std::string_view)>` whose level
/// is an integer or an enumeration. Safe from any thread. A hook may outlive the collector.
class CapturedLog {
 public:
  struct Line {
    int level = 0;
    std::string text;

    friend bool operator==(const Line&, const Line&) = default;
    friend std::ostream& operator<<(std::ostream& out, const Line& line) {
      return out << '[' << line.level << "] " << line.text;
    }
  };

  [[nodiscard]] auto hook() const {
    return [state = state_](auto level, std::string_view text) {
      state->add(static_cast<int>(level), text);
    };
  }
  void add(int level, std::string_view text) { state_->add(level, text); }

  [[nodiscard]] std::vector<Line> lines() const {
    const std::lock_guard guard(state_->mutex);
    return state_->lines;
  }
  [[nodiscard]] std::size_t size() const {
    const std::lock_guard guard(state_->mutex);
    return state_->lines.size();
  }
  void clear() {
    const std::lock_guard guard(state_->mutex);
    state_->lines.clear();
  }
  [[nodiscard]] bool contains(std::string_view substring) const { return count(substring) > 0; }
  [[nodiscard]] std::size_t count(std::string_view substring) const {
    const std::lock_guard guard(state_->mutex);
    return state_->countLocked(substring);
  }
  /// Lines of exactly this level.
  [[nodiscard]] std::size_t countLevel(int level) const {
    const std::lock_guard guard(state_->mutex);
    std::size_t found = 0;
    for (const Line& line : state_->lines) {
      found += line.level == level ? 1U : 0U;
    }
    return found;
  }
  /// True as soon as a line contains `substring`; false after `deadline` (scaled).
  [[nodiscard]] bool waitFor(std::string_view substring, std::chrono::milliseconds deadline) const {
    std::unique_lock guard(state_->mutex);
    return state_->added.wait_until(
        guard, Deadline(deadline).at(), [&] { return state_->countLocked(substring) > 0; });
  }

 private:
  struct State {
    void add(int level, std::string_view text) {
      {
        const std::lock_guard guard(mutex);
        lines.push_back(Line{level, std::string(text)});
      }
      added.notify_all();
    }
    std::size_t countLocked(std::string_view substring) const {
      std::size_t found = 0;
      for (const Line& line : lines) {
        found += line.text.find(substring) != std::string::npos ? 1U : 0U;
      }
      return found;
    }

    std::mutex mutex;
    std::condition_variable added;
    std::vector<Line> lines;
  };

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace rlock::test
