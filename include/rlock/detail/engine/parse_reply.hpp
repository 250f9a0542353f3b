// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/executor/publish_refusal.hpp>

#include <charconv>
#include <cstdint>
#include <optional>
#include <system_error>

namespace rlock::detail {

/// An integer above 0 means yes. Empty: no integer.
inline std::optional<bool> parseYesNo(const Reply& reply) {
  const Reply& answer = withoutRefusal(reply);
  return answer.isInteger() ? std::optional(answer.integer > 0) : std::nullopt;
}

/// An integer, or decimal text; nothing is 0. Empty: something else.
inline std::optional<std::int64_t> parseNumber(const Reply& reply) {
  const Reply& answer = withoutRefusal(reply);
  if (answer.isNil()) {
    return 0;
  }
  if (answer.isInteger()) {
    return answer.integer;
  }
  std::int64_t number = 0;
  const char* const first = answer.text.data();
  const char* const last = first + answer.text.size();
  const auto [end, error] = std::from_chars(first, last, number);
  return error == std::errc() && end == last ? std::optional(number) : std::nullopt;
}

}  // namespace rlock::detail
