// SPDX-License-Identifier: Apache-2.0

// Replies, numbers as Redis reads and writes them, and what all commands have in common. A command
// is a function of its arguments, the keys and the time: it keeps nothing, refuses as Redis does,
// in its words, and runs on the one thread of the server.

#include "testing/redis_commands.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <system_error>
#include <utility>

namespace rlock::sim {

using detail::Reply;

Reply replyNil() {
  return {};
}

Reply replyInteger(std::int64_t number) {
  Reply reply;
  reply.type = Reply::Type::integer;
  reply.integer = number;
  return reply;
}

namespace {

Reply replyText(Reply::Type type, std::string_view text) {
  Reply reply;
  reply.type = type;
  reply.text = text;
  return reply;
}

}  // namespace

Reply replyString(std::string_view text) {
  return replyText(Reply::Type::string, text);
}

Reply replyStatus(std::string_view text) {
  return replyText(Reply::Type::status, text);
}

Reply replyError(std::string_view text) {
  return replyText(Reply::Type::error, text);
}

Reply replyArray(std::vector<Reply> elements) {
  Reply reply;
  reply.type = Reply::Type::array;
  reply.elements.assign(std::make_move_iterator(elements.begin()),
                        std::make_move_iterator(elements.end()));
  return reply;
}

Reply replyWrongType() {
  return replyError("WRONGTYPE Operation against a key holding the wrong kind of value");
}

Reply replyArity(std::string_view name) {
  return replyError("ERR wrong number of arguments for '" + std::string(name) + "' command");
}

std::optional<std::int64_t> redisInteger(std::string_view text) {
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  if (digits.empty() || (digits.front() == '0' && text != "0")) {
    return std::nullopt;
  }
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  return parsed.ec == std::errc() && parsed.ptr == end ? std::optional(number) : std::nullopt;
}

std::optional<double> redisDouble(std::string_view text) {
  const std::string copy(text);
  if (copy.empty() || std::isspace(static_cast<unsigned char>(copy.front())) != 0) {
    return std::nullopt;
  }
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  if (end != copy.c_str() + copy.size() || std::isnan(number)) {
    return std::nullopt;
  }
  return number;
}

std::string redisDoubleText(double number) {
  if (std::isinf(number)) {
    return number > 0 ? "inf" : "-inf";
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.17g", number);
  return text.data();
}

bool redisGlob(std::string_view pattern, std::string_view text) {
  while (!pattern.empty()) {
    const char kind = pattern.front();
    pattern.remove_prefix(1);
    if (kind == '*') {
      for (std::size_t skipped = 0; skipped <= text.size(); ++skipped) {
        if (redisGlob(pattern, text.substr(skipped))) {
          return true;
        }
      }
      return false;
    }
    if (text.empty()) {
      return false;
    }
    const char letter = text.front();
    text.remove_prefix(1);
    if (kind == '[') {
      const bool negated = pattern.starts_with('^');
      pattern.remove_prefix(negated ? 1 : 0);
      bool matches = false;
      while (!pattern.empty() && pattern.front() != ']') {
        if (pattern.front() == '\\' && pattern.size() > 1) {
          pattern.remove_prefix(1);
          matches = matches || pattern.front() == letter;
        } else if (pattern.size() > 2 && pattern[1] == '-') {
          const auto [low, high] = std::minmax(pattern[0], pattern[2]);
          matches = matches || (low <= letter && letter <= high);
          pattern.remove_prefix(2);
        } else {
          matches = matches || pattern.front() == letter;
        }
        pattern.remove_prefix(1);
      }
      pattern.remove_prefix(pattern.empty() ? 0 : 1);
      if (matches == negated) {
        return false;
      }
    } else if (kind == '\\' && !pattern.empty()) {
      if (pattern.front() != letter) {
        return false;
      }
      pattern.remove_prefix(1);
    } else if (kind != '?' && kind != letter) {
      return false;
    }
  }
  return text.empty();
}

std::string lowerCase(std::string_view text) {
  std::string result(text);
  for (char& letter : result) {
    if (letter >= 'A' && letter <= 'Z') {
      letter = static_cast<char>(letter - 'A' + 'a');
    }
  }
  return result;
}

}  // namespace rlock::sim
