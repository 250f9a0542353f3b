// SPDX-License-Identifier: Apache-2.0
#include "support/resp_scan.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <system_error>

namespace rlock::test {

namespace {

/// The line from `pos` on without its end; moves `pos` behind it.
Scan scanLine(std::string_view buffer, std::size_t& pos, std::string_view& line) {
  const std::size_t end = buffer.find("\r\n", pos);
  if (end == std::string_view::npos) {
    return Scan::incomplete;
  }
  line = buffer.substr(pos, end - pos);
  pos = end + 2;
  return Scan::complete;
}

Scan scanNumber(std::string_view buffer, std::size_t& pos, std::int64_t& number) {
  std::string_view line;
  const Scan result = scanLine(buffer, pos, line);
  if (result != Scan::complete) {
    return result;
  }
  const auto parsed = std::from_chars(line.data(), line.data() + line.size(), number);
  return parsed.ec == std::errc() && parsed.ptr == line.data() + line.size() ? Scan::complete
                                                                             : Scan::invalid;
}

Scan scanBytes(std::string_view buffer,
               std::size_t& pos,
               std::int64_t length,
               std::string_view& bytes) {
  const auto size = static_cast<std::size_t>(length);
  if (buffer.size() - pos < size + 2) {
    return Scan::incomplete;
  }
  bytes = buffer.substr(pos, size);
  pos += size + 2;
  return Scan::complete;
}

}  // namespace

Scan scanRequest(std::string_view buffer, std::size_t& length, std::vector<std::string>& argv) {
  argv.clear();
  if (buffer.empty()) {
    return Scan::incomplete;
  }
  std::size_t pos = 1;
  if (buffer[0] != '*') {
    if (buffer[0] != '\r' && buffer[0] != '\n' && (buffer[0] < ' ' || buffer[0] > '~')) {
      return Scan::invalid;
    }
    const std::size_t newline = buffer.find('\n');
    // The bus of a cluster begins with letters.
    if (buffer.substr(0, newline).find('\0') != std::string_view::npos) {
      return Scan::invalid;
    }
    if (newline == std::string_view::npos) {
      return Scan::incomplete;
    }
    length = newline + 1;
    std::size_t at = 0;
    const std::string_view line = buffer.substr(0, newline);
    while ((at = line.find_first_not_of(" \r", at)) != std::string_view::npos) {
      const std::size_t end = std::min(line.find_first_of(" \r", at), line.size());
      argv.emplace_back(line.substr(at, end - at));
      at = end;
    }
    return Scan::complete;
  }
  std::int64_t count = 0;
  if (const Scan result = scanNumber(buffer, pos, count); result != Scan::complete) {
    return result;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    if (pos >= buffer.size()) {
      return Scan::incomplete;
    }
    if (buffer[pos++] != '$') {
      return Scan::invalid;
    }
    std::int64_t size = 0;
    if (const Scan result = scanNumber(buffer, pos, size); result != Scan::complete) {
      return result;
    }
    if (size < 0) {
      return Scan::invalid;
    }
    std::string_view bytes;
    if (const Scan result = scanBytes(buffer, pos, size, bytes); result != Scan::complete) {
      return result;
    }
    argv.emplace_back(bytes);
  }
  length = pos;
  return Scan::complete;
}

Scan scanReply(std::string_view buffer,
               std::size_t& pos,
               int depth,
               std::vector<std::string>& parts) {
  constexpr int kDeepest = 32;
  if (pos >= buffer.size()) {
    return Scan::incomplete;
  }
  if (depth > kDeepest) {
    return Scan::invalid;
  }
  const char type = buffer[pos++];
  const auto collect = [&](std::string_view text) {
    if (depth == 1 && parts.size() < 3) {
      parts.emplace_back(text);
    }
  };
  std::int64_t number = 0;
  switch (type) {
    case '+':
    case '-':
    case ':':
    case ',':
    case '#':
    case '(':
    case '_': {
      std::string_view line;
      const Scan result = scanLine(buffer, pos, line);
      collect(line);
      return result;
    }
    case '$':
    case '!':
    case '=': {
      if (const Scan result = scanNumber(buffer, pos, number); result != Scan::complete) {
        return result;
      }
      std::string_view bytes;
      if (number >= 0) {
        if (const Scan result = scanBytes(buffer, pos, number, bytes); result != Scan::complete) {
          return result;
        }
      }
      collect(bytes);
      return Scan::complete;
    }
    case '*':
    case '~':
    case '>':
    case '%':
    case '|': {
      if (const Scan result = scanNumber(buffer, pos, number); result != Scan::complete) {
        return result;
      }
      const std::int64_t elements = type == '%' || type == '|' ? number * 2 : number;
      for (std::int64_t i = 0; i < elements; ++i) {
        if (const Scan result = scanReply(buffer, pos, depth + 1, parts);
            result != Scan::complete) {
          return result;
        }
      }
      // An attribute comes before the reply that it belongs to.
      return type == '|' ? scanReply(buffer, pos, depth, parts) : Scan::complete;
    }
    default:
      return Scan::invalid;
  }
}

}  // namespace rlock::test
