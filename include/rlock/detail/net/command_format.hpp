// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace rlock::detail::net {

/// Writes commands as the server reads them: `*<words>\r\n`, and for each word
/// `$<size>\r\n<bytes>\r\n`. Any bytes are allowed in any word.
class CommandFormat {
 public:
  /// How many bytes a command takes.
  [[nodiscard]] static std::size_t sizeOf(std::span<const std::string_view> argv) noexcept {
    std::size_t size = headerSize(argv.size());
    for (const std::string_view word : argv) {
      size += headerSize(word.size()) + word.size() + kEnd.size();
    }
    return size;
  }

  /// Appends a command of sizeOf() bytes.
  /// @throws std::bad_alloc, std::length_error  nothing was appended then
  static void append(std::string& out, std::span<const std::string_view> argv, std::size_t size) {
    const std::size_t before = out.size();
    out.resize(before + size);
    char* place = out.data() + before;
    place = writeHeader(place, '*', argv.size());
    for (const std::string_view word : argv) {
      place = writeHeader(place, '$', word.size());
      place = write(place, word);
      place = write(place, kEnd);
    }
  }

 private:
  static constexpr std::string_view kEnd = "\r\n";

  static std::size_t headerSize(std::size_t number) noexcept {
    std::size_t digits = 1;
    for (; number >= 10; number /= 10) {
      ++digits;
    }
    return 1 + digits + kEnd.size();
  }
  static char* writeHeader(char* place, char type, std::size_t number) noexcept {
    constexpr std::size_t kMostDigits = 20;
    *place++ = type;
    if (number < 10) {
      *place++ = static_cast<char>('0' + number);
    } else {
      place = std::to_chars(place, place + kMostDigits, number).ptr;
    }
    return write(place, kEnd);
  }
  static char* write(char* place, std::string_view bytes) noexcept {
    bytes.copy(place, bytes.size());
    return place + bytes.size();
  }
};

/// Appends one command.
/// @throws std::bad_alloc, std::length_error  nothing was appended then
inline void appendCommand(std::string& out, std::span<const std::string_view> argv) {
  CommandFormat::append(out, argv, CommandFormat::sizeOf(argv));
}

}  // namespace rlock::detail::net
