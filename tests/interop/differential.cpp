// SPDX-License-Identifier: Apache-2.0
#include "interop/differential.hpp"

#include "support/eventually.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace rlock::test::interop {

namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kTolerance = 50;
/// Moments below this are no times of this century.
constexpr std::int64_t kFirstMoment = 1'000'000'000'000;
/// What Redisson writes for a permit that never expires.
constexpr std::int64_t kNever = 922'337'203'685'477;
constexpr std::string_view kMarker = "rlock-interop-step";
/// Keys that the other side never reads: Redisson's for unlocks that it repeats, and all of ours.
/// Those that would stay for ever are compared all the same.
constexpr std::string_view kPrivateKeys[] = {"redisson_unlock_latch:", "rlock_"};

/// One consistent look at everything: [now, [key, type, pttl, content...]...].
constexpr std::string_view kDump = R"(
local now = redis.call('TIME')
local reply = {now[1] * 1000 + math.floor(now[2] / 1000)}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  local content = {}
  if kind == 'string' then content = {redis.call('GET', key)}
  elseif kind == 'hash' then content = redis.call('HGETALL', key)
  elseif kind == 'list' then content = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'set' then content = redis.call('SMEMBERS', key)
  elseif kind == 'zset' then content = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
  table.insert(reply, {key, kind, redis.call('PTTL', key), unpack(content)})
end
return reply
)";

std::string hex(const std::string& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += kDigits[value >> 4U];
    text += kDigits[value & 15U];
  }
  return text;
}

void replaceAll(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    text.replace(at, from.size(), to);
    at += to.size();
  }
}

std::string describe(const Interval& interval) {
  return std::to_string(interval.least) + ".." + std::to_string(interval.most) + " ms";
}

template <class Texts>
std::string joined(const Texts& texts) {
  std::string all;
  for (const std::string& text : texts) {
    all.append(all.empty() ? "" : ", ").append(text);
  }
  return "[" + all + "]";
}

}  // namespace

struct ScriptRun::Step {
  explicit Step(std::string_view line) {
    std::istringstream words{std::string(line)};
    std::string first;
    words >> first;
    if (const std::size_t equals = first.find('='); equals != std::string::npos) {
      variable = first.substr(0, equals);
      first.erase(0, equals + 1);
    }
    owner = first.at(0);
    mode = first.size() > 1 ? first[1] : ' ';
    std::vector<std::string> rest;
    for (std::string word; words >> word;) {
      if (word.front() == '~') {
        const std::size_t equals = word.find('=');
        announced[word.substr(1, equals - 1)] = word.substr(equals + 1);
      } else {
        rest.push_back(word);
      }
    }
    const auto part = [&](std::size_t index) { return index < rest.size() ? rest[index] : ""; };
    verb = part(0);
    kind = part(1);
    name = part(2);
    if (rest.size() > 3) {
      arguments.assign(rest.begin() + 3, rest.end());
    }
  }

  char owner = '-';
  char mode = ' ';
  std::string variable;
  std::string verb;
  std::string kind;
  std::string name;
  std::vector<std::string> arguments;
  std::map<std::string, std::string> announced;  ///< aspect to difference
};

std::int64_t Interval::distance(const Interval& other) const {
  return std::max<std::int64_t>({0, least - other.most, other.least - most});
}

ScriptRun::ScriptRun(const RedisServer& server, std::string uri, Peer& java, Peer& cpp)
    : uri_(std::move(uri)), java_(java), cpp_(cpp), raw_(server), subscriber_(server) {
  subscriber_.psubscribe("*");
}

Peer& ScriptRun::peerOf(const Cast& cast, char owner) {
  return cast.at(owner) == Side::java ? java_ : cpp_;
}

std::vector<Observation> ScriptRun::perform(const Script& script, const Cast& cast) {
  raw_.flushAll();
  pending_.clear();
  variables_.clear();
  remembered_.clear();
  names_.clear();
  // Nothing that a run left behind in a client may show in the next.
  ++client_;
  // Leases that nobody renews while a script runs.
  const Peer::Tuning tuning{.watchdog = 60'000ms};
  for (Peer* peer : {&java_, &cpp_}) {
    peer->open(client_, uri_, tuningFor(peer->side(), tuning));
  }
  for (const auto& [owner, side] : cast) {
    const int number = owner - 'A' + 1;
    names_[peerOf(cast, owner).ownerField(client_, number)] = std::string(1, owner);
  }
  messagesOfStep();
  std::map<std::string, Value> ignored;
  lastDump_ = dump(ignored);

  std::vector<Observation> observations;
  for (const std::string_view line : script.steps) {
    observations.push_back(performStep(Step(line), cast));
  }
  for (Peer* peer : {&java_, &cpp_}) {
    peer->ask(client_, 0, "close", "-", "-");
  }
  return observations;
}

Observation ScriptRun::performStep(const Step& step, const Cast& cast) {
  Observation observation;
  const std::int64_t before = lastDump_;
  if (step.owner == '-') {
    std::this_thread::sleep_for(std::chrono::milliseconds(std::stoll(step.kind)));
  } else {
    Peer& peer = peerOf(cast, step.owner);
    Call call;
    if (step.mode == '.') {
      call = pending_.at(step.owner);
      pending_.erase(step.owner);
    } else {
      std::vector<std::string> arguments = step.arguments;
      for (std::string& argument : arguments) {
        if (argument.front() == '$') {
          argument = variables_.at(argument.substr(1));
        }
      }
      call = peer.start(client_, step.owner - 'A' + 1, step.verb, step.kind, step.name, arguments);
    }
    if (step.mode == '&') {
      pending_[step.owner] = call;
      // Until it has been refused, subscribed and refused again.
      std::this_thread::sleep_for(250ms);
      observation.answer = peer.finished(call) ? "did not wait" : "waits";
    } else {
      const Answer answer = peer.finish(call);
      if (!step.variable.empty()) {
        variables_[step.variable] = answer.value;
        names_[answer.value] = "$" + step.variable;
      }
      const bool time = step.verb == "ttl" || step.verb == "leaseTime";
      observation.answer =
          time && answer.ok() && answer.number() > 0 ? "a time" : normalised(answer.text());
    }
  }
  observation.comparable = step.mode != '>';
  if (observation.comparable) {
    observation.messages = messagesOfStep();
    observe(observation, before);
  }
  return observation;
}

std::int64_t ScriptRun::dump(std::map<std::string, Value>& keys) {
  const Value reply = raw_.eval(kDump);
  const std::vector<Value>& parts = reply.array();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    keys[parts[i].array()[0].string()] = parts[i];
  }
  return parts.at(0).integer();
}

Interval ScriptRun::relative(const std::string& what,
                             std::int64_t moment,
                             std::int64_t before,
                             std::int64_t now,
                             std::map<std::string, Remembered>& next) const {
  const auto last = remembered_.find(what);
  Interval interval{moment - now, moment - before};
  if (last != remembered_.end() && std::abs(last->second.moment - moment) <= 2) {
    interval = last->second.relative;
  }
  next[what] = Remembered{moment, interval};
  return interval;
}

void ScriptRun::observe(Observation& observation, std::int64_t before) {
  std::map<std::string, Value> keys;
  const std::int64_t now = dump(keys);
  lastDump_ = now;
  std::map<std::string, Remembered> next;
  for (const auto& [key, value] : keys) {
    const std::vector<Value>& parts = value.array();
    const bool isPrivate =
        std::any_of(std::begin(kPrivateKeys), std::end(kPrivateKeys), [&](std::string_view start) {
          return key.starts_with(start);
        });
    if (isPrivate && parts[2].integer() >= 0) {
      continue;
    }
    KeyState state;
    state.type = parts[1].string();
    if (const std::int64_t left = parts[2].integer(); left >= 0) {
      state.lifetime = relative(key, now + left, before, now, next);
    }
    const bool pairs = state.type == "hash" || state.type == "zset";
    for (std::size_t i = 3; i < parts.size(); i += pairs ? 2 : 1) {
      std::string member = parts[i].string();
      if (member.size() == 16 && names_.contains(hex(member))) {
        member = hex(member);
      }
      member = normalised(member);
      if (state.type == "hash") {
        state.content.push_back(member + "=" + parts[i + 1].string());
      } else if (state.type == "zset") {
        const auto score = std::llround(std::stod(parts[i + 1].string()));
        if (score < kFirstMoment || score == kNever) {
          state.content.push_back(member + " at " + std::to_string(score));
        } else {
          state.content.push_back(member);
          state.scores[member] = relative(key + "\n" + member, score, before, now, next);
        }
      } else {
        state.content.push_back(member);
      }
    }
    if (state.type != "list") {
      std::sort(state.content.begin(), state.content.end());
    }
    observation.keys[normalised(key)] = std::move(state);
  }
  remembered_ = std::move(next);
}

std::string ScriptRun::normalised(std::string text) const {
  for (const auto& [field, name] : names_) {
    replaceAll(text, field, name);
  }
  return text;
}

std::multiset<std::string> ScriptRun::messagesOfStep() {
  const std::string payload = std::to_string(++stepNumber_);
  raw_.publish(kMarker, payload);
  const auto arrived = [&] {
    const auto messages = subscriber_.messages();
    return !messages.empty() && messages.back().channel == kMarker &&
           messages.back().payload == payload;
  };
  if (!eventually(10s, arrived)) {
    throw std::runtime_error("the subscriber hears nothing: " + subscriber_.error());
  }
  const auto messages = subscriber_.messages();
  std::multiset<std::string> heard;
  for (std::size_t i = messagesSeen_; i + 1 < messages.size(); ++i) {
    if (messages[i].channel != kMarker) {
      heard.insert(normalised(messages[i].channel) + " " + messages[i].payload);
    }
  }
  messagesSeen_ = messages.size();
  return heard;
}

namespace {

/// What of one key differs: aspect, and how.
std::vector<std::pair<std::string, std::string>> differencesOf(const KeyState& redisson,
                                                               const KeyState& actual) {
  std::vector<std::pair<std::string, std::string>> found;
  if (redisson.type != actual.type || redisson.content != actual.content) {
    found.emplace_back(
        "content",
        redisson.type + joined(redisson.content) + " / " + actual.type + joined(actual.content));
  }
  const auto text = [](const std::optional<Interval>& lifetime) {
    return lifetime ? describe(*lifetime) : "without end";
  };
  if (redisson.lifetime.has_value() != actual.lifetime.has_value() ||
      (redisson.lifetime && redisson.lifetime->distance(*actual.lifetime) > kTolerance)) {
    found.emplace_back("ttl", text(redisson.lifetime) + " / " + text(actual.lifetime));
  }
  for (const auto& [member, interval] : redisson.scores) {
    const auto same = actual.scores.find(member);
    if (same != actual.scores.end() && interval.distance(same->second) > kTolerance) {
      found.emplace_back("score",
                         member + " " + describe(interval) + " / " + describe(same->second));
    }
  }
  return found;
}

}  // namespace

Comparison compare(const Script& script,
                   const std::vector<Observation>& redisson,
                   const std::vector<Observation>& actual,
                   bool allOurs) {
  Comparison result;
  // Aspect and key that may differ, and by which difference.
  std::map<std::pair<std::string, std::string>, std::string> tolerated;
  for (std::size_t i = 0; i < script.steps.size(); ++i) {
    const Observation& theirs = redisson.at(i);
    const Observation& ours = actual.at(i);
    std::map<std::string, std::string> announced = ScriptRun::announcedBy(script.steps[i]);
    const std::string where = std::to_string(i + 1) + " `" + std::string(script.steps[i]) + "`: ";
    std::set<std::string> met;
    std::set<std::pair<std::string, std::string>> differing;
    const auto report = [&](const std::string& aspect,
                            const std::string& key,
                            const std::string& how) {
      differing.emplace(aspect, key);
      if (const auto found = announced.find(aspect); found != announced.end()) {
        met.insert(aspect);
        result.seen.insert(found->second);
        tolerated[{aspect, key}] = found->second;
      } else if (!tolerated.contains({aspect, key})) {
        result.unexpected.push_back(where + aspect + (key.empty() ? "" : " of " + key) + " " + how);
      }
    };
    if (theirs.answer != ours.answer) {
      report("answer", "", theirs.answer + " / " + ours.answer);
    }
    if (!theirs.comparable) {
      continue;
    }
    if (theirs.messages != ours.messages) {
      report("message", "", joined(theirs.messages) + " / " + joined(ours.messages));
    }
    for (const auto& [key, state] : theirs.keys) {
      const auto same = ours.keys.find(key);
      if (same == ours.keys.end()) {
        report("key", key, "is missing");
        continue;
      }
      for (const auto& [aspect, how] : differencesOf(state, same->second)) {
        report(aspect, key, how);
      }
    }
    for (const auto& [key, state] : ours.keys) {
      if (!theirs.keys.contains(key)) {
        report("key", key, "is more than Redisson has");
      }
    }
    // What has become the same must stay so; answers and messages are of one step in any case.
    std::erase_if(tolerated, [&](const auto& entry) {
      return entry.first.second.empty() || !differing.contains(entry.first);
    });
    for (const auto& [aspect, difference] : announced) {
      if (allOurs && !met.contains(aspect)) {
        result.unexpected.push_back(where + aspect + " does not differ, though announced (" +
                                    difference + ")");
      }
    }
  }
  return result;
}

std::map<std::string, std::string> ScriptRun::announcedBy(std::string_view line) {
  return Step(line).announced;
}

}  // namespace rlock::test::interop
