// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/executor/connection_killer.hpp>
#include <rlock/detail/net/server_session.hpp>
#include <rlock/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace rlock::detail {

class Node;

/// The requests of one call that were lost and that a server may still execute, each with the
/// connection on which it was lost. Nothing more of the call goes out before they can do no harm: a
/// request can when its connection is known to be dead, or when a tombstone's life is over.
///
/// Invariant: a request leaves only by expire(). They stay from one request of the call to the
/// next. A request for which makeRoom() was called is added without memory: there may be none when
/// its connection is lost.
///
/// **Thread safety:** loop thread only. It reads no clock.
class LostRequests {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using SessionPtr = std::shared_ptr<const net::ServerSession>;
  using State = ConnectionKiller::State;

  /// The harm that is done if the server executes the request after it was given up.
  enum class Late : std::uint8_t {
    harmless,  ///< nothing: it is a question, or the server can tell that it is late
    adds,      ///< a hold is there that nobody knows of
    takes      ///< a later hold is gone
  };
  struct Lost {
    SessionPtr session;  ///< the connection on which it was lost
    Late late;
    TimePoint lostAt;
    Node* node;                      ///< can have the connection closed
    std::shared_ptr<Node> nodeKept;  ///< its owner, where nodes come and go
  };
  /// Whether the connections of all of them are dead.
  struct Killed {
    State state = State::dead;
    const Lost* by = nullptr;  ///< what is waited for, or was refused; null with `dead`
  };

  [[nodiscard]] bool empty() const noexcept { return !first_; }
  /// Makes room for one more. The first needs none.
  void makeRoom() {
    if (first_) {
      more_.reserve(more_.size() + 1);
    }
  }
  /// @param lost  not a harmless one
  void add(Lost lost) {
    if (first_) {
      more_.push_back(std::move(lost));
    } else {
      first_.emplace(std::move(lost));
    }
  }
  /// The lost requests of another call are this one's, too, with another harm.
  void share(const LostRequests& other, Late late);

  /// Forgets those that can do no harm any more.
  /// @param life  for how long a lost request can run at most
  void expire(TimePoint now, std::chrono::nanoseconds life);
  /// Asks `check`, a `State(const Lost&)`, about each of them. One that is refused ends the search
  /// unless `despiteRefusal`; then it is waited for like one that was asked for.
  template <class Check>
  Killed killed(bool despiteRefusal, Check check) const;
  /// Why one of them cannot be closed: the first answer of `why`, a
  /// `std::optional<Error>(const Lost&)`.
  template <class Why>
  std::optional<Error> refusal(Why why) const;
  /// When the last one was lost that takes a later hold away; min(): none does.
  [[nodiscard]] TimePoint lastThatTakes() const noexcept;

 private:
  [[nodiscard]] std::size_t size() const noexcept { return first_ ? 1 + more_.size() : 0; }
  [[nodiscard]] const Lost& at(std::size_t i) const noexcept {
    return i == 0 ? *first_ : more_[i - 1];
  }

  std::optional<Lost> first_;
  std::vector<Lost> more_;  // empty without the first
};

inline void LostRequests::share(const LostRequests& other, Late late) {
  for (std::size_t i = 0; i < other.size(); ++i) {
    Lost lost = other.at(i);
    lost.late = late;
    add(std::move(lost));
  }
}

inline void LostRequests::expire(TimePoint now, std::chrono::nanoseconds life) {
  const auto over = [now, life](const Lost& lost) {
    return lost.session->dead || now - lost.lostAt >= life;
  };
  std::erase_if(more_, over);
  if (!first_ || !over(*first_)) {
    return;
  }
  first_.reset();
  if (!more_.empty()) {
    first_.emplace(std::move(more_.front()));
    more_.erase(more_.begin());
  }
}

template <class Check>
LostRequests::Killed LostRequests::killed(bool despiteRefusal, Check check) const {
  Killed all;
  for (std::size_t i = 0; i < size(); ++i) {
    const Lost& lost = at(i);
    const State state = check(lost);
    if (state == State::refused && !despiteRefusal) {
      return {State::refused, &lost};
    }
    if (state != State::dead) {
      all = {State::asked, &lost};
    }
  }
  return all;
}

template <class Why>
std::optional<Error> LostRequests::refusal(Why why) const {
  for (std::size_t i = 0; i < size(); ++i) {
    const Lost& lost = at(i);
    if (std::optional<Error> error = why(lost)) {
      return error;
    }
  }
  return std::nullopt;
}

inline LostRequests::TimePoint LostRequests::lastThatTakes() const noexcept {
  auto last = TimePoint::min();
  for (std::size_t i = 0; i < size(); ++i) {
    const Lost& lost = at(i);
    if (lost.late == Late::takes) {
      last = std::max(last, lost.lostAt);
    }
  }
  return last;
}

}  // namespace rlock::detail
