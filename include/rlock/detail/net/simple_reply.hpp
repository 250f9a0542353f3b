// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/reply.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <system_error>

namespace rlock::detail::net {

/// Reads the replies that nearly all requests get: an integer, nil, or an array of one integer.
/// Everything else, whole or not, right or wrong, is left to the ReplyReader.
class SimpleReply {
 public:
  /// Returns how many bytes the reply takes at the beginning of `bytes`; 0: it is not a simple one,
  /// or not whole, and `out` is as it was.
  /// @throws std::bad_alloc  `out` is nil
  static std::size_t read(std::string_view bytes, Reply& out);

 private:
  static void clear(Reply& out) noexcept {
    out.type = Reply::Type::nil;
    out.text.clear();
    out.elements.clear();
  }
  static Reply& onlyElement(Reply& out) {
    out.elements.resize(1);
    out.type = Reply::Type::array;
    return out.elements.front();
  }

  /// `:<number>\r\n`
  static std::size_t readInteger(std::string_view bytes, std::int64_t& number) noexcept;
};

inline std::size_t SimpleReply::read(std::string_view bytes, Reply& out) {
  constexpr std::string_view kNil = "$-1\r\n";
  constexpr std::string_view kOne = "*1\r\n";
  if (bytes.starts_with(kNil)) {
    clear(out);
    return kNil.size();
  }
  const std::size_t before = bytes.starts_with(kOne) ? kOne.size() : 0;
  std::int64_t number = 0;
  const std::size_t size = readInteger(bytes.substr(before), number);
  if (size == 0) {
    return 0;
  }
  clear(out);
  Reply& place = before == 0 ? out : onlyElement(out);
  place.type = Reply::Type::integer;
  place.integer = number;
  return before + size;
}

inline std::size_t SimpleReply::readInteger(std::string_view bytes, std::int64_t& number) noexcept {
  if (!bytes.starts_with(':')) {
    return 0;
  }
  const char* const last = bytes.data() + bytes.size();
  const auto [end, error] = std::from_chars(bytes.data() + 1, last, number);
  const bool whole = error == std::errc() && last - end >= 2 && end[0] == '\r' && end[1] == '\n';
  return whole ? static_cast<std::size_t>(end + 2 - bytes.data()) : 0;
}

}  // namespace rlock::detail::net
