// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interop/peer.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"

#include <chrono>
#include <cstdint>
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
///     [VARIABLE=]OWNER[&|.|>] VERB KIND NAME ARGUMENT...  [~ASPECT=DIFFERENCE]...
///
/// OWNER is a letter, or `-` for `- pause MS`. `A&` starts a call that will wait, `A.` ends it, and
/// after `A>` the state is not compared because another owner is about to enter. `$VARIABLE` stands
/// for what the call of that name answered. ASPECT says what may differ from this step on until it
/// is the same again: answer, message (this step only), key, content, ttl, score.
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

/// What stands under a key, with owners as letters and times relative to the step that set them: as
/// the step took a while, an interval.
struct KeyState {
  std::string type;
  std::vector<std::string> content;
  std::optional<Interval> lifetime;        ///< empty: without end
  std::map<std::string, Interval> scores;  ///< those that are times
};

struct Observation {
  std::string answer;
  std::multiset<std::string> messages;  ///< "channel payload"
  std::map<std::string, KeyState> keys;
  bool comparable = true;  ///< false after `A>`
};

/// Who performs the steps of an owner.
using Cast = std::map<char, Side>;

/// Runs a script and says what there was after each step.
class ScriptRun {
 public:
  ScriptRun(const RedisServer& server, std::string uri, Peer& java, Peer& cpp);

  std::vector<Observation> perform(const Script& script, const Cast& cast);

  /// The differences that a line of a script announces: aspect to difference.
  static std::map<std::string, std::string> announcedBy(std::string_view line);

 private:
  struct Step;
  struct Remembered {
    std::int64_t moment = 0;
    Interval relative;
  };

  Observation performStep(const Step& step, const Cast& cast);
  void observe(Observation& observation, std::int64_t before);
  std::int64_t dump(std::map<std::string, Value>& keys);
  Interval relative(const std::string& what,
                    std::int64_t moment,
                    std::int64_t before,
                    std::int64_t now,
                    std::map<std::string, Remembered>& next) const;
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
  std::map<std::string, Remembered> remembered_;
};

/// What differs although nobody meant it to; and which of the announced differences were seen.
struct Comparison {
  std::vector<std::string> unexpected;
  std::set<std::string> seen;
};

/// @param allOurs  whether every step of `actual` was rlock's: then a difference that was announced
///                 and is not there is unexpected too
Comparison compare(const Script& script,
                   const std::vector<Observation>& redisson,
                   const std::vector<Observation>& actual,
                   bool allOurs);

}  // namespace rlock::test::interop
