// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/script_texts.hpp>

#include <atomic>
#include <cstdint>
#include <utility>

namespace rlock::detail {

/// Has a server that does not know a script given its text, once, however many calls need it: one
/// call brings the text, and the others go out again behind it, by the hash.
///
/// Invariant: a call that brings a text has it under way until answered() is told of its end.
///
/// **Thread safety:** safe from any thread, each call by one at a time.
class ScriptSupply {
 public:
  /// The server does not know the script: the call is to go out again, with the text unless that is
  /// on its way already.
  void supply(Call& call);
  /// The call was answered, or lost: in both cases a text that it brought is not under way any
  /// more.
  void answered(Call& call) noexcept {
    const lua::Script* const brought =
        call.room_ ? std::exchange(call.room_->brings, nullptr) : nullptr;
    if (brought != nullptr) {
      texts_.arrived(brought);
    }
  }
  /// The call is to be ahead of others. A server that does not know the script would ask for its
  /// text, and by the time that comes the call would not be ahead any more: so the first one brings
  /// it unasked.
  void supplyAhead(Call& call) {
    if (call.script_ != nullptr && ahead_.first(*call.script_)) {
      call.sendText();
    }
  }
  /// There is another connection.
  void reconnected() noexcept { ahead_.forget(); }
  /// How often a text was asked for.
  [[nodiscard]] std::uint64_t loaded() const noexcept {
    return loaded_.load(std::memory_order_relaxed);
  }

 private:
  ScriptTexts texts_;
  TextsSentAhead ahead_;
  std::atomic<std::uint64_t> loaded_{0};
};

inline void ScriptSupply::supply(Call& call) {
  const bool mine = texts_.claim(call.script_);
  if (!mine && !std::exchange(call.behindText_, true)) {
    return;
  }
  call.room_->brings = mine ? call.script_ : nullptr;
  loaded_.fetch_add(1, std::memory_order_relaxed);
  call.sendText();
}

}  // namespace rlock::detail
