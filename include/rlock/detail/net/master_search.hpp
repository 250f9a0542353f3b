// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/backoff.hpp>
#include <rlock/detail/net/sentinel_list.hpp>
#include <rlock/error.hpp>
#include <rlock/options.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rlock::detail::net {

/// Decides how a master is found: which Sentinel is asked when, and which address is connected to.
///
/// It goes in rounds. In a round each Sentinel is asked once, in the order that the SentinelList
/// had at the beginning, and each has a head start before the next is asked beside it. An answer is
/// no more than a candidate: its address is to be connected to, and only a server that says itself
/// that it is the master ends the search. No majority is needed for that. When a candidate is none,
/// or cannot be reached, the other Sentinels are asked at once, and after a pause all of them once
/// more: during a failover they need a moment. The search is over when no Sentinel names an
/// address, when a reason was found that waiting does not cure, or when its time is over.
///
/// A candidate counts no more once a Sentinel has said that the master has moved: one that is cut
/// off goes on to say that it is the master, and a search that ended there would lead all
/// connections of the client back to it. It counts again when a Sentinel that was asked since then
/// names it. The address that the master has moved away from counts for a while not even then, for
/// a Sentinel may not have heard of the move; unless the server that it has moved to says that it
/// is none.
///
/// The owner does what next() says until it says `wait` or `over`, tells what came of it, and asks
/// again.
///
/// **Thread safety:** One thread at a time.
class MasterSearch {
 public:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;

  struct Action {
    enum class Kind : std::uint8_t {
      ask,     ///< the Sentinel at `endpoint`; answered() or failed() follows
      verify,  ///< whether the master is at `endpoint`; refuted() follows, or objection(), and the
               ///< search has succeeded if there is none
      drop,    ///< no Sentinel names that `endpoint` any more; nothing follows
      wait,    ///< until then, unless something comes
      over,    ///< failure() says why
    };
    Kind kind = Kind::wait;
    Endpoint endpoint{};
    TimePoint until{};
  };

  /// @param list  must outlive the search; others may use it meanwhile
  MasterSearch(SentinelList& list, std::string master, TimePoint now, TimePoint deadline)
      : list_(list), master_(std::move(master)), deadline_(deadline), headStartEnd_(now) {
    beginRound(now);
    if (auto hint = list.hint(now)) {
      candidates_.push_back({*std::move(hint), moves_});
    }
  }

  [[nodiscard]] Action next(TimePoint now);

  void answered(const Endpoint& sentinel, const SentinelAnswer& answer, TimePoint now);
  void failed(const Endpoint& sentinel, const Error& error, TimePoint now);
  void refuted(const Endpoint& endpoint, const Error& error, TimePoint now);
  /// Why the search does not end at a server that says itself that it is the master; refuted()
  /// follows then. Empty: it does.
  [[nodiscard]] std::optional<Error> objection(const Endpoint& endpoint, TimePoint now);

  /// Why no master was found.
  [[nodiscard]] Error failure() const;

 private:
  struct Sentinel {
    Endpoint endpoint;
    bool due = true;
    bool asked = false;       ///< and not yet answered
    std::string note{};       ///< of its last answer that was of no use
    std::uint64_t moves = 0;  ///< that were heard of before it was asked
  };
  enum class State : std::uint8_t { fresh, tried, refuted };
  struct Candidate {
    Endpoint endpoint;
    std::uint64_t moves;  ///< that were heard of before it was named
    State state = State::fresh;
    bool named = true;          ///< in this round
    std::uint64_t dialled = 0;  ///< moves that were heard of before it was tried
  };

  static constexpr std::chrono::milliseconds kHeadStart{250};
  static constexpr std::chrono::milliseconds kFirstPause{50};
  static constexpr std::chrono::milliseconds kLongestPause{500};

  /// Failures that another try does not cure, as far as one server can tell.
  static bool lasts(Errc errc) noexcept {
    return errc != Errc::connectionFailed && errc != Errc::readOnly;
  }
  /// The error without the address, which the text of the whole has already.
  static std::string reasonOf(const Endpoint& endpoint, const Error& error) {
    const std::string prefix = "cannot connect to " + toString(endpoint) + ": ";
    const std::string& text = error.message();
    return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
  }

  void beginRound(TimePoint now);
  void listen();
  [[nodiscard]] Action waitUntil(TimePoint until) const {
    return {Action::Kind::wait, {}, std::min(until, deadline_)};
  }
  [[nodiscard]] Clock::duration headStart(TimePoint now) const;
  Sentinel* find(const Endpoint& sentinel);
  Candidate* candidate(const Endpoint& endpoint);
  [[nodiscard]] bool under(State state) const;
  /// Each candidate of this round was refuted for a reason that waiting does not cure. One of
  /// several proves nothing: a Sentinel may name an address that is another server's by now.
  [[nodiscard]] bool waitingIsVain() const { return lastingMaster_ && !passingMaster_; }

  SentinelList& list_;
  std::uint64_t moves_ = list_.moves();  ///< that this search has heard of
  const std::string master_;
  const TimePoint deadline_;
  std::vector<Sentinel> sentinels_;
  std::vector<Candidate> candidates_;
  TimePoint headStartEnd_;
  std::optional<TimePoint> pauseEnd_;
  DoublingPause pause_{kFirstPause, kLongestPause};
  bool named_ = false;    ///< a Sentinel has named an address in this round
  bool unknown_ = false;  ///< one knows no master of that name
  std::string refutation_;
  std::optional<Error> lastingMaster_;
  std::optional<Error> lastingSentinel_;
  bool passingMaster_ = false;    ///< a candidate of this round failed for a reason that passes
  bool passingSentinel_ = false;  ///< the same of a Sentinel
  std::string node_;              ///< of the last candidate that was refuted
};

inline void MasterSearch::beginRound(TimePoint now) {
  for (const Endpoint& endpoint : list_.order()) {
    if (find(endpoint) == nullptr) {
      sentinels_.push_back({endpoint});
    }
  }
  for (Sentinel& sentinel : sentinels_) {
    sentinel.due = !sentinel.asked;
  }
  std::erase_if(candidates_, [](const Candidate& each) { return each.state == State::refuted; });
  for (Candidate& each : candidates_) {
    each.named = false;
  }
  named_ = false;
  unknown_ = false;
  lastingMaster_.reset();
  lastingSentinel_.reset();
  passingMaster_ = false;
  passingSentinel_ = false;
  headStartEnd_ = now;
  pauseEnd_.reset();
}

/// Looks at what a Sentinel has said unasked since the last look.
inline void MasterSearch::listen() {
  if (moves_ == list_.moves()) {
    return;
  }
  moves_ = list_.moves();
  const std::optional<Endpoint> master = list_.movedTo();
  if (!master) {
    return;
  }
  Candidate* const known = candidate(*master);
  if (known == nullptr) {
    candidates_.push_back({*master, moves_});
    return;
  }
  known->moves = moves_;
  known->named = true;
  if (known->state == State::refuted) {
    // It may have become the master since.
    known->state = State::fresh;
  }
}

inline MasterSearch::Action MasterSearch::next(TimePoint now) {
  listen();
  for (;;) {
    if (now >= deadline_) {
      return {Action::Kind::over};
    }
    for (Candidate& each : candidates_) {
      if (each.state == State::fresh) {
        each.state = State::tried;
        each.dialled = moves_;
        headStartEnd_ = now + headStart(now);
        return {Action::Kind::verify, each.endpoint};
      }
    }
    const auto due = std::find_if(
        sentinels_.begin(), sentinels_.end(), [](const Sentinel& each) { return each.due; });
    if (due != sentinels_.end()) {
      if (now < headStartEnd_) {
        return waitUntil(headStartEnd_);
      }
      due->due = false;
      due->asked = true;
      due->moves = moves_;
      headStartEnd_ = now + headStart(now);
      return {Action::Kind::ask, due->endpoint};
    }
    const bool asking = std::any_of(
        sentinels_.begin(), sentinels_.end(), [](const Sentinel& each) { return each.asked; });
    if (!pauseEnd_) {
      if (!asking && !under(State::tried) && (waitingIsVain() || !named_)) {
        return {Action::Kind::over};
      }
      if (asking && now < headStartEnd_) {
        return waitUntil(headStartEnd_);
      }
      pauseEnd_ = now + pause_.next();
    }
    if (named_) {
      const auto old =
          std::find_if(candidates_.begin(), candidates_.end(), [](const Candidate& each) {
            return each.state == State::tried && !each.named;
          });
      if (old != candidates_.end()) {
        Action drop{Action::Kind::drop, std::move(old->endpoint)};
        candidates_.erase(old);
        return drop;
      }
    }
    if (now < *pauseEnd_) {
      return waitUntil(*pauseEnd_);
    }
    beginRound(now);
  }
}

/// Everybody has a turn before the time is over, however many there are.
inline MasterSearch::Clock::duration MasterSearch::headStart(TimePoint now) const {
  const auto waiting = std::count_if(
      sentinels_.begin(), sentinels_.end(), [](const Sentinel& each) { return each.due; });
  return std::min<Clock::duration>(kHeadStart, (deadline_ - now) / (waiting + 2));
}

inline MasterSearch::Sentinel* MasterSearch::find(const Endpoint& sentinel) {
  const auto at = std::find_if(sentinels_.begin(), sentinels_.end(), [&](const Sentinel& each) {
    return each.endpoint == sentinel;
  });
  return at == sentinels_.end() ? nullptr : &*at;
}

inline MasterSearch::Candidate* MasterSearch::candidate(const Endpoint& endpoint) {
  const auto at = std::find_if(candidates_.begin(), candidates_.end(), [&](const Candidate& each) {
    return each.endpoint == endpoint;
  });
  return at == candidates_.end() ? nullptr : &*at;
}

inline bool MasterSearch::under(State state) const {
  return std::any_of(candidates_.begin(), candidates_.end(), [state](const Candidate& each) {
    return each.state == state;
  });
}

inline void MasterSearch::answered(const Endpoint& sentinel,
                                   const SentinelAnswer& answer,
                                   TimePoint now) {
  list_.answered(sentinel, answer.others, answer.dead);
  Sentinel* const known = find(sentinel);
  // The answer may be older than a message that has come before it.
  const std::uint64_t moves = known != nullptr ? known->moves : moves_;
  list_.heard(sentinel, answer.master, moves, now);
  if (known != nullptr) {
    known->asked = false;
    known->note.clear();
  }
  for (const Endpoint& other : answer.others) {
    if (find(other) == nullptr) {
      sentinels_.push_back({other});
    }
  }
  if (!answer.master) {
    unknown_ = true;
    if (Sentinel* const again = find(sentinel)) {
      again->note = "knows no master of that name";
    }
    headStartEnd_ = now;
    return;
  }
  named_ = true;
  if (Candidate* const same = candidate(*answer.master)) {
    same->named = true;
    same->moves = std::max(same->moves, moves);
    if (same->state == State::refuted) {
      headStartEnd_ = now;
    }
    return;
  }
  candidates_.push_back({*answer.master, moves});
}

inline void MasterSearch::failed(const Endpoint& sentinel, const Error& error, TimePoint now) {
  if (Sentinel* const known = find(sentinel)) {
    known->asked = false;
    known->note = reasonOf(sentinel, error);
  }
  if (!lasts(error.errc())) {
    passingSentinel_ = true;
  } else if (!lastingSentinel_) {
    lastingSentinel_ = error;
  }
  headStartEnd_ = now;
}

inline void MasterSearch::refuted(const Endpoint& endpoint, const Error& error, TimePoint now) {
  if (Candidate* const known = candidate(endpoint)) {
    // It may have been tried before the master has moved there.
    known->state = known->dialled < known->moves ? State::fresh : State::refuted;
    if (error.errc() == Errc::readOnly && known->dialled == list_.moves()) {
      list_.disowned(endpoint);
    }
  }
  node_ = toString(endpoint);
  refutation_ = reasonOf(endpoint, error);
  if (lasts(error.errc())) {
    lastingMaster_ = error;
  } else {
    passingMaster_ = true;
  }
  headStartEnd_ = now;
}

inline std::optional<Error> MasterSearch::objection(const Endpoint& endpoint, TimePoint now) {
  listen();
  if (list_.left(endpoint, now)) {
    return Error(Errc::connectionFailed, "a Sentinel has just said that the master is elsewhere");
  }
  const Candidate* const known = candidate(endpoint);
  if (known == nullptr || known->moves == moves_) {
    return std::nullopt;
  }
  return Error(Errc::connectionFailed, "a Sentinel has said since then that the master has moved");
}

inline Error MasterSearch::failure() const {
  if (waitingIsVain()) {
    return *lastingMaster_;
  }
  const bool awaited = std::any_of(
      sentinels_.begin(), sentinels_.end(), [](const Sentinel& each) { return each.asked; });
  if (lastingSentinel_ && !passingSentinel_ && !awaited && !named_) {
    return *lastingSentinel_;
  }
  ErrorContext context;
  context.node = !node_.empty() ? node_ : toString(sentinels_.front().endpoint);
  std::string text = "no Sentinel leads to a master \"" + escapeForDisplay(master_) + "\"";
  std::string separator = ": ";
  for (const Sentinel& each : sentinels_) {
    const std::string note = each.asked ? "timed out" : each.note;
    if (!note.empty()) {
      text.append(separator).append("Sentinel ").append(toString(each.endpoint));
      text.append(": ").append(note);
      separator = "; ";
    }
  }
  for (const Candidate& each : candidates_) {
    if (each.state == State::tried) {
      text += separator + "master " + toString(each.endpoint) + ": timed out";
      separator = "; ";
    }
  }
  if (!refutation_.empty()) {
    text += separator + "master " + node_ + ": " + refutation_;
  }
  // A name that was right once does not become wrong: then the Sentinels are.
  const bool wrongName = unknown_ && !named_ && !list_.everFound();
  return Error(
      wrongName ? Errc::invalidArgument : Errc::connectionFailed, text, std::move(context));
}

}  // namespace rlock::detail::net
