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
/// How long the server is not looked at while a step goes on. A time that is set between two looks
/// may be off by that beside the tolerance, and by as much more as this process was not run just
/// then.
constexpr std::chrono::milliseconds kBetweenLooks = 5ms;
/// Moments below this are no times of this century.
constexpr std::int64_t kFirstMoment = 1'000'000'000'000;
/// The expiry that Redisson writes for a permit that never expires.
constexpr std::int64_t kNever = 922'337'203'685'477;
constexpr std::string_view kMarker = "rlock-interop-step";
constexpr std::string_view kPrivateKeys[] = {"redisson_unlock_latch:", "rlock_"};

/// One consistent look at everything: [now, [key, type, moment of expiry or -1, content...]...].
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
  -- Redis before 7 tells only what is left, as of a moment that is not quite that of TIME.
  local ends = redis.pcall('PEXPIRETIME', key)
  if type(ends) ~= 'number' then
    ends = redis.call('PTTL', key)
    if ends >= 0 then ends = reply[1] + ends end
  end
  table.insert(reply, {key, kind, ends, unpack(content)})
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

/// An older Redis tells lifetimes, not moments.
bool isSameMoment(std::int64_t one, std::int64_t other) {
  return std::abs(one - other) <= 2;
}

std::string describe(const std::optional<TimeState>& state) {
  if (!state) {
    return "without end";
  }
  const Interval& interval = state->time.relative;
  return std::to_string(interval.least) + ".." + std::to_string(interval.most) + " ms";
}

template <class Texts>
std::string joined(const Texts& texts) {
  std::string all;
  for (const std::string& text : texts) {
    all.append(all.empty() ? "" : ",").append(text);
  }
  return all;
}

}  // namespace

bool isPrivateKey(std::string_view key) {
  return std::any_of(std::begin(kPrivateKeys), std::end(kPrivateKeys), [&](std::string_view start) {
    return key.starts_with(start);
  });
}

void replaceAll(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    text.replace(at, from.size(), to);
    at += to.size();
  }
}

/// A difference that a step announces.
struct Announcement {
  /// @param word  of a script, after the `~`
  Announcement(const std::string& word, char owner) : performers(1, owner) {
    const std::size_t equals = word.find('=');
    const std::size_t colon = word.find(':', equals);
    if (equals == std::string::npos || colon == std::string::npos) {
      throw std::runtime_error("this announces nothing: " + word);
    }
    aspect = word.substr(0, equals);
    if (const std::size_t at = aspect.find('@'); at != std::string::npos) {
      performers = aspect.substr(at + 1);
      aspect.erase(at);
    }
    difference = word.substr(equals + 1, colon - equals - 1);
    const std::string what = word.substr(colon + 1);
    if (aspect == "answer") {
      expected = what;
    } else if (aspect == "key" || aspect == "message") {
      const std::size_t signs = what.find_first_not_of("+-?");
      expected = what.substr(0, signs);
      subject = what.substr(signs);
    } else {
      const std::size_t end = what.find('=');
      subject = what.substr(0, end);
      expected = what.substr(end + 1);
    }
  }

  [[nodiscard]] bool appliesTo(const Cast& cast) const {
    return std::all_of(performers.begin(), performers.end(), [&](char each) {
      return each >= 'a' ? cast.at(static_cast<char>(each - 'a' + 'A')) == Side::java
                         : cast.at(each) == Side::cpp;
    });
  }

  std::string performers;  ///< rlock of those in capitals, Redisson of the others
  std::string aspect;
  std::string difference;
  std::string subject;   ///< the key, the key and `:MEMBER` of a score, or the message
  std::string expected;  ///< what rlock has there; of a key or a message the sign
};

struct ScriptStep {
  explicit ScriptStep(std::string_view line) {
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
        announced.emplace_back(word.substr(1), owner);
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
  std::vector<Announcement> announced;
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
  // A lock that goes from owner to owner of one client is announced less often than by Redisson.
  const std::string announced =
      uri_ + (uri_.find('?') == std::string::npos ? "?" : "&") + "hand-over-limit=0";
  names_[java_.open(client_, uri_, tuning)] = toString(java_.side());
  names_[cpp_.open(client_, announced, tuning)] = toString(cpp_.side());
  for (const auto& [owner, side] : cast) {
    const int number = owner - 'A' + 1;
    names_[peerOf(cast, owner).ownerField(client_, number)] = std::string(1, owner);
  }
  messagesOfStep();
  std::map<std::string, Value> ignored;
  lastDump_ = dump(ignored);

  std::vector<Observation> observations;
  for (const std::string_view line : script.steps) {
    observations.push_back(performStep(ScriptStep(line), cast));
  }
  for (Peer* peer : {&java_, &cpp_}) {
    peer->ask(client_, 0, "close", "-", "-");
  }
  return observations;
}

Observation ScriptRun::performStep(const ScriptStep& step, const Cast& cast) {
  Observation observation;
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
      const bool finished = lookUntil(250ms, [&] { return peer.finished(call); });
      observation.answer = finished ? "did not wait" : "waits";
    } else {
      if (!lookUntil(Peer::kLongest, [&] { return peer.finished(call); })) {
        throw std::runtime_error(peer.about() + " does not answer: " + step.verb);
      }
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
    const auto passing = [&](const Announcement& each) {
      return each.aspect == "key" && each.expected == "?" &&
             observation.keys.contains(each.subject);
    };
    // A key that stays is found by the comparison, as one that Redisson does not have.
    static_cast<void>(eventually(10s, [&] {
      observe(observation);
      return std::none_of(step.announced.begin(), step.announced.end(), passing);
    }));
  }
  return observation;
}

bool ScriptRun::lookUntil(std::chrono::milliseconds deadline, const std::function<bool()>& done) {
  const Deadline end(deadline);
  while (!done()) {
    if (end.expired()) {
      return false;
    }
    Observation passing;
    observe(passing);
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return true;
}

std::int64_t ScriptRun::dump(std::map<std::string, Value>& keys) {
  const Value reply = raw_.eval(kDump);
  const std::vector<Value>& parts = reply.array();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    keys[parts[i].array()[0].string()] = parts[i];
  }
  return parts.at(0).integer();
}

TimeState ScriptRun::timeState(const std::string& what,
                               std::int64_t moment,
                               std::int64_t now,
                               std::map<std::string, TimeState>& next) const {
  const auto last = remembered_.find(what);
  const bool known = last != remembered_.end();
  TimeState state;
  if (known && isSameMoment(last->second.time.moment, moment)) {
    state = last->second;
  } else {
    state.time = Time{moment, Interval{moment - now, moment - lastDump_}};
    if (known) {
      state.former = last->second.time;
    }
  }
  next[what] = state;
  return state;
}

void ScriptRun::observe(Observation& observation) {
  observation.keys.clear();
  std::map<std::string, Value> keys;
  const std::int64_t now = dump(keys);
  std::map<std::string, TimeState> next;
  for (const auto& [key, value] : keys) {
    const std::vector<Value>& parts = value.array();
    // One that would stay for ever is compared all the same.
    if (isPrivateKey(key) && parts[2].integer() >= 0) {
      continue;
    }
    KeyState state;
    state.type = parts[1].string();
    if (const std::int64_t end = parts[2].integer(); end >= 0) {
      state.lifetime = timeState(key, end, now, next);
    }
    const bool pairs = state.type == "hash" || state.type == "zset";
    for (std::size_t i = 3; i < parts.size(); i += pairs ? 2 : 1) {
      const std::string what = key + "\n" + parts[i].string();
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
          state.scores[member] = timeState(what, score, now, next);
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
  lastDump_ = now;
}

std::string ScriptRun::normalised(std::string text) const {
  // The field of an owner begins with the id of its client, and comes later in the map.
  for (auto each = names_.rbegin(); each != names_.rend(); ++each) {
    replaceAll(text, each->first, each->second);
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
      heard.insert(normalised(messages[i].channel) + ":" + messages[i].payload);
    }
  }
  messagesSeen_ = messages.size();
  return heard;
}

namespace {

/// Where a time stands, a key or `KEY:MEMBER`, to what it is.
using Times = std::map<std::string, TimeState>;

Times timesOf(const Observation& observation) {
  Times times;
  for (const auto& [key, state] : observation.keys) {
    if (state.lifetime) {
      times[key] = *state.lifetime;
    }
    for (const auto& [member, score] : state.scores) {
      times[key + ":" + member] = score;
    }
  }
  return times;
}

/// Where both have the same time: counted from the step that set it, or, as those depend on how
/// long the steps before took, from what stood there before, or from another time that is the same.
std::set<std::string> sameTimes(const Times& redisson, const Times& actual) {
  const auto near = [](const Time& one, const Time& other) {
    return one.relative.distance(other.relative) <= kTolerance;
  };
  const auto asFar = [](const Time& one, const Time& from, const Time& other, const Time& its) {
    return std::abs((one.moment - from.moment) - (other.moment - its.moment)) <= kTolerance;
  };
  std::set<std::string> same;
  std::size_t known = 0;
  do {
    known = same.size();
    for (const auto& [where, theirs] : redisson) {
      const auto found = actual.find(where);
      if (found == actual.end()) {
        continue;
      }
      const TimeState& ours = found->second;
      if (near(theirs.time, ours.time) ||
          (theirs.former && ours.former && near(*theirs.former, *ours.former) &&
           asFar(theirs.time, *theirs.former, ours.time, *ours.former)) ||
          std::any_of(same.begin(), same.end(), [&](const std::string& other) {
            return asFar(theirs.time, redisson.at(other).time, ours.time, actual.at(other).time);
          })) {
        same.insert(where);
      }
    }
  } while (same.size() > known);
  return same;
}

/// A difference in an answer or in what stands under a key.
struct Found {
  std::string aspect;
  std::string subject;
  std::string how;       ///< Redisson's / what there is
  std::string expected;  ///< how it would be announced, if it is no time
  std::optional<TimeState> time;

  /// @param times  of the same observation
  [[nodiscard]] bool is(const std::string& announced, const Times& times) const {
    if (!time) {
      return announced == expected;
    }
    const std::size_t sign = announced.find_last_of("+-");
    if (sign == std::string::npos) {
      const std::int64_t ms = std::stoll(announced);
      return time->time.relative.distance({ms, ms}) <= kTolerance;
    }
    std::string other = announced.substr(0, sign);
    if (other.front() == ':') {
      other.insert(0, subject, 0, subject.rfind(':'));
    }
    std::optional<Time> from;
    if (other == subject) {
      from = time->former;
    } else if (const auto found = times.find(other); found != times.end()) {
      from = found->second.time;
    }
    return from && std::abs(time->time.moment - from->moment -
                            std::stoll(announced.substr(sign))) <= kTolerance;
  }
};

void compareKey(const std::string& key,
                const KeyState& redisson,
                const KeyState& actual,
                const std::set<std::string>& same,
                std::vector<Found>& found) {
  const std::string content = joined(actual.content);
  if (redisson.type != actual.type || redisson.content != actual.content) {
    found.push_back(
        {"content",
         key,
         redisson.type + " " + joined(redisson.content) + " / " + actual.type + " " + content,
         redisson.type == actual.type ? content : actual.type,
         {}});
  }
  if ((redisson.lifetime || actual.lifetime) && !same.contains(key)) {
    found.push_back({"ttl",
                     key,
                     describe(redisson.lifetime) + " / " + describe(actual.lifetime),
                     "without end",
                     actual.lifetime});
  }
  for (const auto& [member, score] : redisson.scores) {
    const std::string where = key + ":" + member;
    // A member that is missing is a difference of the content.
    const auto other = actual.scores.find(member);
    if (other != actual.scores.end() && !same.contains(where)) {
      found.push_back(
          {"score", where, describe(score) + " / " + describe(other->second), "", other->second});
    }
  }
}

std::vector<Found> compareKeys(const Observation& redisson,
                               const Observation& actual,
                               const Times& times) {
  const std::set<std::string> same = sameTimes(timesOf(redisson), times);
  std::vector<Found> found;
  for (const auto& [key, state] : redisson.keys) {
    if (const auto ours = actual.keys.find(key); ours != actual.keys.end()) {
      compareKey(key, state, ours->second, same, found);
    } else {
      found.push_back({"key", key, "is missing", "-", {}});
    }
  }
  for (const auto& [key, state] : actual.keys) {
    if (!redisson.keys.contains(key)) {
      found.push_back({"key", key, "is more than Redisson has", "+", {}});
    }
  }
  return found;
}

/// The messages of the first that are not in the second.
std::multiset<std::string> without(const std::multiset<std::string>& all,
                                   const std::multiset<std::string>& others) {
  std::multiset<std::string> rest;
  std::set_difference(
      all.begin(), all.end(), others.begin(), others.end(), std::inserter(rest, rest.end()));
  return rest;
}

/// Takes the messages that are announced away. Returns whether there are as many as announced.
bool takeAnnounced(const Announcement& announced,
                   const Cast& cast,
                   std::multiset<std::string>& more,
                   std::multiset<std::string>& less) {
  std::string message = announced.subject;
  for (const auto& [owner, side] : cast) {
    replaceAll(message, std::string("$") + owner, toString(side));
  }
  std::multiset<std::string>& messages = announced.expected == "-" ? less : more;
  if (announced.expected == "+" || announced.expected == "-") {
    const auto found = messages.find(message);
    if (found == messages.end()) {
      return false;
    }
    messages.erase(found);
    return true;
  }
  return messages.erase(message) > 0 || announced.expected == "?";
}

}  // namespace

Comparison compare(const Script& script,
                   const std::vector<Observation>& redisson,
                   const std::vector<Observation>& actual,
                   const Cast& cast) {
  Comparison result;
  // The differences that may stay as they were announced: aspect and subject, to what was announced
  // and found.
  struct Standing {
    std::string announced;
    std::optional<TimeState> time;
  };
  std::map<std::pair<std::string, std::string>, Standing> standing;
  for (std::size_t i = 0; i < script.steps.size(); ++i) {
    const Observation& theirs = redisson.at(i);
    const Observation& ours = actual.at(i);
    const std::string_view line = script.steps[i];
    const std::string where =
        std::to_string(i + 1) + " `" + std::string(line.substr(0, line.find(" ~"))) + "`: ";
    std::vector<Announcement> announced = ScriptStep(line).announced;
    std::erase_if(announced, [&](const Announcement& each) { return !each.appliesTo(cast); });
    const auto unexpected = [&](const std::string& text) {
      result.unexpected.push_back(where + text);
    };

    const Times times = timesOf(ours);
    std::vector<Found> found;
    std::multiset<std::string> more;
    std::multiset<std::string> less;
    if (theirs.answer != ours.answer) {
      found.push_back({"answer", "", theirs.answer + " / " + ours.answer, ours.answer, {}});
    }
    if (theirs.comparable) {
      std::vector<Found> ofKeys = compareKeys(theirs, ours, times);
      std::move(ofKeys.begin(), ofKeys.end(), std::back_inserter(found));
      more = without(ours.messages, theirs.messages);
      less = without(theirs.messages, ours.messages);
    }

    for (const Announcement& each : announced) {
      bool met = each.aspect == "key" && each.expected == "?";
      if (each.aspect == "message") {
        met = takeAnnounced(each, cast, more, less);
      }
      for (const Found& difference : found) {
        if (difference.aspect == each.aspect && difference.subject == each.subject &&
            difference.is(each.expected, times)) {
          met = true;
          standing[{each.aspect, each.subject}] = Standing{each.expected, difference.time};
        }
      }
      if (met) {
        result.seen.insert(each.difference);
      } else {
        unexpected(each.aspect + " is not as announced: " + each.difference + " " + each.subject +
                   " " + each.expected);
      }
    }

    std::set<std::pair<std::string, std::string>> differing;
    for (const Found& difference : found) {
      const std::pair place{difference.aspect, difference.subject};
      const auto may = standing.find(place);
      const bool untouched =
          may != standing.end() && difference.time && may->second.time &&
          isSameMoment(difference.time->time.moment, may->second.time->time.moment);
      if (untouched || (may != standing.end() && difference.is(may->second.announced, times))) {
        differing.insert(place);
      } else {
        unexpected(difference.aspect +
                   (difference.subject.empty() ? "" : " of " + difference.subject) + " " +
                   difference.how);
      }
    }
    for (const std::string& message : more) {
      unexpected("message " + message + " is more than Redisson has");
    }
    for (const std::string& message : less) {
      unexpected("message " + message + " is missing");
    }
    if (theirs.comparable) {
      // A subject that is the same again must stay so; an answer is of one step in any case.
      std::erase_if(standing, [&](const auto& entry) {
        return entry.first.first == "answer" || !differing.contains(entry.first);
      });
    }
  }
  return result;
}

}  // namespace rlock::test::interop
