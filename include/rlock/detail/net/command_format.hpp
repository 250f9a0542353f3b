// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace rlock::detail::net {

/// Writes commands as the server reads them: `*<words>\r\n`, and for each word
/// `$<size>\r\n<bytes>\r\n`. Any bytes are allowed in any word.
class CommandFormat {
 public:
  /// Appends a command, and returns how many bytes it takes.
  /// @throws std::bad_alloc, std::length_error  nothing was appended then
  static std::size_t append(std::string& out, std::span<const std::string_view> argv);

 private:
  static constexpr std::string_view kEnd = "\r\n";
  static constexpr std::size_t kMostDigits = 20;
  static constexpr std::size_t kMostHeader = 1 + kMostDigits + kEnd.size();

  static char* writeHeader(char* place, char type, std::size_t number) noexcept;
  static char* write(char* place, std::string_view bytes) noexcept {
    bytes.copy(place, bytes.size());
    return place + bytes.size();
  }
};

inline std::size_t CommandFormat::append(std::string& out, std::span<const std::string_view> argv) {
  std::size_t most = kMostHeader;
  for (const std::string_view word : argv) {
    most += kMostHeader + word.size() + kEnd.size();
  }
  const std::size_t before = out.size();
  // Room for the longest headers there are, so that no number is looked at twice.
  out.resize(before + most);
  char* const begin = out.data() + before;
  char* place = writeHeader(begin, '*', argv.size());
  for (const std::string_view word : argv) {
    place = writeHeader(place, '$', word.size());
    place = write(place, word);
    place = write(place, kEnd);
  }
  const auto size = static_cast<std::size_t>(place - begin);
  out.resize(before + size);
  return size;
}

inline char* CommandFormat::writeHeader(char* place, char type, std::size_t number) noexcept {
  *place++ = type;
  if (number < 10) {
    *place++ = static_cast<char>('0' + number);
  } else if (number < 100) {
    *place++ = static_cast<char>('0' + number / 10);
    *place++ = static_cast<char>('0' + number % 10);
  } else {
    place = std::to_chars(place, place + kMostDigits, number).ptr;
  }
  return write(place, kEnd);
}

/// Appends one command.
/// @throws std::bad_alloc, std::length_error  nothing was appended then
inline void appendCommand(std::string& out, std::span<const std::string_view> argv) {
  CommandFormat::append(out, argv);
}

}  // namespace rlock::detail::net
