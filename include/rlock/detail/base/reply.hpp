// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/block_cache.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::detail {

/// One parsed server reply (a tree for arrays). It is a value with no ties to its connection.
/// **Thread safety:** one thread at a time.
struct Reply {
  using Elements = std::vector<Reply, BlockAllocator<Reply>>;
  enum class Type : std::uint8_t { nil, integer, status, string, error, array };

  Type type = Type::nil;
  std::int64_t integer = 0;
  std::string text;   ///< status, string or error text
  Elements elements;  ///< array

  [[nodiscard]] bool isNil() const noexcept { return type == Type::nil; }
  [[nodiscard]] bool isError() const noexcept { return type == Type::error; }
  [[nodiscard]] bool isInteger() const noexcept { return type == Type::integer; }
  [[nodiscard]] bool isArray() const noexcept { return type == Type::array; }
  /// True for a status or a string with exactly this text.
  [[nodiscard]] bool is(std::string_view expected) const noexcept {
    return (type == Type::status || type == Type::string) && text == expected;
  }
};

/// The first word of an error reply, which is the error code.
inline std::string_view firstWord(std::string_view text) noexcept {
  return text.substr(0, text.find(' '));
}

}  // namespace rlock::detail
