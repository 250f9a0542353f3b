// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/reply.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace rlock::detail::test {

// Replies as a server sends them.

inline Reply textReply(std::string value) {
  Reply reply;
  reply.type = Reply::Type::string;
  reply.text = std::move(value);
  return reply;
}

inline Reply numberReply(std::int64_t value) {
  Reply reply;
  reply.type = Reply::Type::integer;
  reply.integer = value;
  return reply;
}

inline Reply listReply(Reply::Elements elements) {
  Reply reply;
  reply.type = Reply::Type::array;
  reply.elements = std::move(elements);
  return reply;
}

}  // namespace rlock::detail::test
