// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interop/peer.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::test::interop {

/// A difference from Redisson that is meant, and said in docs/redisson.md.
struct Difference {
  std::string_view id;
  std::string_view reason;
};
/// All of them; nothing else may differ.
const std::vector<Difference>& differences();

/// Steps of several owners, performed by Redisson, by rlock, or by both in turn. One line each:
///
///     [VARIABLE=]OWNER[&|.|>] VERB KIND NAME ARGUMENT...  [~ASPECT[@WHO]=DIFFERENCE:WHAT]...
///
/// OWNER is a letter, or `-` for `- pause MS`. `A&` starts a call that will wait, `A.` ends it, and
/// after `A>` the state is not compared because another owner is about to enter. `$VARIABLE` stands
/// for what the call of that name answered.
///
/// `~` announces what rlock does instead of what Redisson does:
///
///     ~answer=ID:TEXT                  it answers this
///     ~content=ID:KEY=TEXT,TEXT...     this stands under the key
///     ~ttl=ID:KEY=TIME                 the key expires then
///     ~score=ID:KEY:MEMBER=TIME        this time is the member's score
///     ~key=ID:+KEY   ~key=ID:-KEY      a key more, a key less
///     ~key=ID:?KEY                     a key that is there for moments: it must be gone in between
///     ~message=ID:+CHANNEL:PAYLOAD     a message more; `-`: one less; `++`: one or several more;
///                                      `?`: any number more. `$A` stands for the client of A
///
/// TIME is in milliseconds from the moment that set it, or `KEY+MS`, `KEY:MEMBER-MS` and so on:
/// from another time that stands there, or from the one that stood at the same place before. The
/// KEY of a score may be left out.
///
/// It must be so where rlock performs what OWNER does, and nowhere else; WHO says what else that
/// depends on: `@Ab` is where rlock is A and Redisson B. The state of a key may stay as announced
/// until it is Redisson's again.
struct Script {
  std::string_view kind;
  std::vector<std::string_view> steps;
};

/// Between two moments, in milliseconds.
struct Interval {
  std::int64_t least = 0;
  std::int64_t most = 0;

  /// How far apart the nearest of their points are.
  [[nodiscard]] std::int64_t distance(const Interval& other) const;
};

/// An expiry, or a score that is a time. It was set between two looks at the server, some
/// milliseconds apart: relative to that it is an interval.
struct Time {
  std::int64_t moment = 0;  ///< of the server's clock
  Interval relative;
};
/// A time and the other one that stood at its place before.
struct TimeState {
  Time time;
  std::optional<Time> former;
};

/// The state of a key, with owners as letters.
struct KeyState {
  std::string type;
  std::vector<std::string> content;
  std::optional<TimeState> lifetime;        ///< empty: without end
  std::map<std::string, TimeState> scores;  ///< those that are times
};

struct Observation {
  std::string answer;
  std::multiset<std::string> messages;  ///< "channel:payload"
  std::map<std::string, KeyState> keys;
  bool comparable = true;  ///< false after `A>`
};

/// Of no concern to the other side: Redisson's keys for unlocks that it repeats, and all of ours.
[[nodiscard]] bool isPrivateKey(std::string_view key);
void replaceAll(std::string& text, const std::string& from, const std::string& to);

/// The side that performs the steps of each owner.
using Cast = std::map<char, Side>;

struct ScriptStep;

/// Runs a script and says what there was after each step.
class ScriptRun {
 public:
  ScriptRun(const RedisServer& server, std::string uri, Peer& java, Peer& cpp);

  std::vector<Observation> perform(const Script& script, const Cast& cast);

 private:
  Observation performStep(const ScriptStep& step, const Cast& cast);
  void observe(Observation& observation);
  /// Looks at the server meanwhile, so that it is known when what was set.
  bool lookUntil(std::chrono::milliseconds deadline, const std::function<bool()>& done);
  std::int64_t dump(std::map<std::string, Value>& keys);
  TimeState timeState(const std::string& what,
                      std::int64_t moment,
                      std::int64_t now,
                      std::map<std::string, TimeState>& next) const;
  std::string normalised(std::string text) const;
  std::multiset<std::string> messagesOfStep();
  Peer& peerOf(const Cast& cast, char owner);

  std::string uri_;
  Peer& java_;
  Peer& cpp_;
  RawRedis raw_;
  RawSubscriber subscriber_;
  int client_ = 100;
  std::int64_t lastDump_ = 0;
  std::size_t messagesSeen_ = 0;
  int stepNumber_ = 0;
  std::map<char, Call> pending_;
  std::map<std::string, std::string> variables_;
  /// From what stands in Redis to what it means.
  std::map<std::string, std::string> names_;
  std::map<std::string, TimeState> remembered_;
};

/// The differences that nobody announced, and the announced ones that were seen.
struct Comparison {
  std::vector<std::string> unexpected;
  std::set<std::string> seen;
};

/// @param cast  whose the steps of `actual` were; all of those of `redisson` were Redisson's
Comparison compare(const Script& script,
                   const std::vector<Observation>& redisson,
                   const std::vector<Observation>& actual,
                   const Cast& cast);

}  // namespace rlock::test::interop
