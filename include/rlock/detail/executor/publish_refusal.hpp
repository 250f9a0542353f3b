// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/reply.hpp>

#include <string_view>

namespace rlock::detail {

/// Why the server refused the message by which a script was to tell waiters; empty: it did not. The
/// script has done its work nevertheless, and adds this text to its answer, which becomes an array
/// if it is none. Not for scripts whose answers end with another text.
inline std::string_view publishRefusal(const Reply& reply) noexcept {
  const bool refused = reply.isArray() && reply.elements.size() > 1 &&
                       reply.elements.back().type == Reply::Type::string;
  return refused ? std::string_view(reply.elements.back().text) : std::string_view();
}

/// The answer without that text, of a script that answers with one number.
inline const Reply& withoutRefusal(const Reply& reply) noexcept {
  return reply.elements.size() == 2 && !publishRefusal(reply).empty() ? reply.elements[0] : reply;
}

}  // namespace rlock::detail
