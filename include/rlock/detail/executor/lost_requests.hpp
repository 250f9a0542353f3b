// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/executor/connection_killer.hpp>
#include <rlock/detail/net/server_session.hpp>
#include <rlock/error.hpp>

#include <algorithm>
#include <chrono>
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
/// next.
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

  [[nodiscard]] bool empty() const noexcept { return lost_.empty(); }
  /// @param lost  not a harmless one
  void add(Lost lost) { lost_.push_back(std::move(lost)); }
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
  std::vector<Lost> lost_;
};

inline void LostRequests::share(const LostRequests& other, Late late) {
  for (Lost lost : other.lost_) {
    lost.late = late;
    lost_.push_back(std::move(lost));
  }
}

inline void LostRequests::expire(TimePoint now, std::chrono::nanoseconds life) {
  std::erase_if(lost_, [now, life](const Lost& lost) {
    return lost.session->dead || now - lost.lostAt >= life;
  });
}

template <class Check>
LostRequests::Killed LostRequests::killed(bool despiteRefusal, Check check) const {
  Killed all;
  for (const Lost& lost : lost_) {
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
  for (const Lost& lost : lost_) {
    if (std::optional<Error> error = why(lost)) {
      return error;
    }
  }
  return std::nullopt;
}

inline LostRequests::TimePoint LostRequests::lastThatTakes() const noexcept {
  auto last = TimePoint::min();
  for (const Lost& lost : lost_) {
    if (lost.late == Late::takes) {
      last = std::max(last, lost.lostAt);
    }
  }
  return last;
}

}  // namespace rlock::detail
