// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace rlock::detail {

/// The scripts whose texts are on their way to the server. One connection executes in order: a
/// request that finds meanwhile that its script is missing there is repeated by the hash, behind
/// the text.
///
/// **Thread safety:** safe from any thread.
class ScriptTexts {
 public:
  /// True when the caller is to send the text, and to call arrived() when that is over. False while
  /// another does.
  [[nodiscard]] bool claim(const lua::Script* script) noexcept;
  void arrived(const lua::Script* script) noexcept {
    const MutexLock lock(mutex_);
    const auto end = underWay_.begin() + static_cast<std::ptrdiff_t>(count_);
    const auto found = std::find(underWay_.begin(), end, script);
    if (found != end) {
      *found = underWay_[--count_];
    }
  }

 private:
  AnnotatedMutex mutex_;
  std::array<const lua::Script*, 32> underWay_ RLOCK_GUARDED_BY(mutex_){};
  std::size_t count_ RLOCK_GUARDED_BY(mutex_) = 0;
};

inline bool ScriptTexts::claim(const lua::Script* script) noexcept {
  const MutexLock lock(mutex_);
  const auto end = underWay_.begin() + static_cast<std::ptrdiff_t>(count_);
  // With more scripts than places a text is sent once too often.
  if (count_ == underWay_.size() || std::find(underWay_.begin(), end, script) != end) {
    return false;
  }
  underWay_[count_++] = script;
  return true;
}

/// The scripts whose texts were sent ahead over the present connection to a server.
///
/// **Thread safety:** safe from any thread.
class TextsSentAhead {
 public:
  /// True for the first time that a script is named since forget().
  bool first(const lua::Script& script) {
    const MutexLock lock(mutex_);
    if (std::find(sent_.begin(), sent_.end(), &script) != sent_.end()) {
      return false;
    }
    sent_.push_back(&script);
    return true;
  }
  /// There is another connection.
  void forget() noexcept {
    const MutexLock lock(mutex_);
    sent_.clear();
  }

 private:
  AnnotatedMutex mutex_;
  std::vector<const lua::Script*> sent_ RLOCK_GUARDED_BY(mutex_);
};

}  // namespace rlock::detail
