// SPDX-License-Identifier: Apache-2.0
#include "interop/peer.hpp"

#include "support/eventually.hpp"
#include "support/spawn.hpp"
#include <rlock/options.hpp>

#include <charconv>
#include <cstdlib>
#include <stdexcept>

namespace rlock::test::interop {

namespace {

std::string programDirectory() {
  if (const char* directory = std::getenv("RLOCK_TEST_PROGRAM_DIR")) {
    return directory;
  }
  const std::string self = selfExecutable();
  return self.substr(0, self.find_last_of('/'));
}

ChildProcess launch(Side side, const std::string& redisson) {
  if (side == Side::cpp) {
    return ChildProcess(programDirectory() + "/rlock_interop_driver");
  }
  const std::string built = RLOCK_INTEROP_JAVA_DIR "/" + redisson;
  return ChildProcess("java",
                      {"-Xmx256m",
                       "-XX:TieredStopAtLevel=1",
                       "-XX:+UseSerialGC",
                       "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
                       "-cp",
                       built + "/classes:" + built + "/lib/*",
                       "rlock.interop.Peer"});
}

void appendUtf8(std::string& text, unsigned code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0U | (code >> 6U));
    text += static_cast<char>(0x80U | (code & 0x3FU));
  } else {
    text += static_cast<char>(0xE0U | (code >> 12U));
    text += static_cast<char>(0x80U | ((code >> 6U) & 0x3FU));
    text += static_cast<char>(0x80U | (code & 0x3FU));
  }
}

class FlatJson {
 public:
  explicit FlatJson(std::string_view text) : text_(text) {}

  std::map<std::string, std::string> parse() {
    std::map<std::string, std::string> fields;
    expect('{');
    while (true) {
      std::string key = quoted();
      expect(':');
      fields[std::move(key)] = peek() == '"' ? quoted() : bare();
      if (peek() == '}') {
        return fields;
      }
      expect(',');
    }
  }

 private:
  [[noreturn]] void fail() const {
    throw std::runtime_error("not an answer: " + std::string(text_));
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  char next() {
    if (at_ >= text_.size()) {
      fail();
    }
    return text_[at_++];
  }
  void expect(char wanted) {
    if (next() != wanted) {
      fail();
    }
  }
  std::string bare() {
    std::string value;
    while (peek() != ',' && peek() != '}') {
      value += next();
    }
    return value;
  }
  std::string quoted() {
    expect('"');
    std::string value;
    for (char character = next(); character != '"'; character = next()) {
      if (character != '\\') {
        value += character;
        continue;
      }
      character = next();
      if (character != 'u') {
        value += character;
        continue;
      }
      unsigned code = 0;
      const std::string_view digits = text_.substr(at_, 4);
      if (std::from_chars(digits.data(), digits.data() + digits.size(), code, 16).ec !=
          std::errc()) {
        fail();
      }
      at_ += digits.size();
      appendUtf8(value, code);
    }
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

const char* toString(Side side) {
  return side == Side::java ? "java" : "cpp";
}

std::ostream& operator<<(std::ostream& out, Side side) {
  return out << toString(side);
}

std::ostream& operator<<(std::ostream& out, const Answer& answer) {
  return answer.ok() ? out << answer.value : out << answer.error << " (" << answer.message << ")";
}

std::int64_t Answer::number() const {
  std::int64_t number = 0;
  const auto result = std::from_chars(value.data(), value.data() + value.size(), number);
  if (!ok() || result.ec != std::errc() || result.ptr != value.data() + value.size()) {
    throw std::runtime_error("not a number: " + text() + " " + message);
  }
  return number;
}

std::map<std::string, std::string> parseFlatJson(std::string_view text) {
  return FlatJson(text).parse();
}

Peer::Peer(Side side, const std::string& redisson) : side_(side), process_(launch(side, redisson)) {
  about_ = finish(Call{0}).value;
}

std::string Peer::open(int client, const std::string& uri, const Tuning& tuning) {
  const Answer answer = ask(client,
                            0,
                            "open",
                            "-",
                            uri,
                            {std::to_string(tuning.watchdog.count()),
                             std::to_string(tuning.safetyPoll.count()),
                             std::to_string(tuning.fairWait.count()),
                             std::to_string(tuning.commandTimeout.count()),
                             tuning.checkReplicas ? "1" : "0"});
  if (!answer.ok()) {
    throw std::runtime_error(about_ + " cannot open " + uri + ": " + answer.error + " " +
                             answer.message);
  }
  return answer.value;
}

std::string Peer::ownerField(int client, int owner) {
  return ask(client, owner, "owner", "-", "-").value;
}

Call Peer::start(int client,
                 int owner,
                 std::string_view verb,
                 std::string_view kind,
                 std::string_view name,
                 const std::vector<std::string>& arguments) {
  const Call call{++lastId_};
  std::string line = std::to_string(call.id);
  line.append(" ").append(verb);
  line.append(" ").append(std::to_string(client));
  line.append(" ").append(std::to_string(owner));
  line.append(" ").append(kind).append(" ").append(name);
  for (const std::string& argument : arguments) {
    line.append(" ").append(argument);
  }
  process_.send(line);
  return call;
}

bool Peer::readAnswer(std::chrono::milliseconds deadline) {
  const auto line = process_.readLine(deadline);
  if (!line) {
    return false;
  }
  auto fields = parseFlatJson(*line);
  Answer answer;
  answer.begin = std::chrono::nanoseconds(std::atoll(fields["begin"].c_str()));
  answer.end = std::chrono::nanoseconds(std::atoll(fields["end"].c_str()));
  answer.value = fields["value"];
  answer.error = fields["error"];
  answer.message = fields["message"];
  answers_[std::atoll(fields["id"].c_str())] = std::move(answer);
  return true;
}

Answer Peer::finish(Call call, std::chrono::milliseconds deadline) {
  const Deadline end(deadline);
  while (true) {
    const auto found = answers_.find(call.id);
    if (found != answers_.end()) {
      Answer answer = std::move(found->second);
      answers_.erase(found);
      return answer;
    }
    // The deadline is scaled already.
    const auto left = std::chrono::milliseconds(
        static_cast<std::int64_t>(static_cast<double>(end.remaining().count()) / timeFactor()));
    if (!readAnswer(left)) {
      throw std::runtime_error(std::string(toString(side_)) + " does not answer command " +
                               std::to_string(call.id));
    }
  }
}

bool Peer::finished(Call call) {
  while (readAnswer(std::chrono::milliseconds(0))) {
  }
  return answers_.contains(call.id);
}

Answer Peer::ask(int client,
                 int owner,
                 std::string_view verb,
                 std::string_view kind,
                 std::string_view name,
                 const std::vector<std::string>& arguments) {
  return finish(start(client, owner, verb, kind, name, arguments));
}

}  // namespace rlock::test::interop
