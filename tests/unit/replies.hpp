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

/// The reply to CLUSTER SLOTS in a cluster of which one node, at port 7000, has all slots.
inline Reply allSlotsAt(const std::string& host) {
  Reply::Elements master;
  master.push_back(textReply(host));
  master.push_back(numberReply(7000));
  Reply::Elements range;
  range.push_back(numberReply(0));
  range.push_back(numberReply(16383));
  range.push_back(listReply(std::move(master)));
  Reply::Elements map;
  map.push_back(listReply(std::move(range)));
  return listReply(std::move(map));
}

}  // namespace rlock::detail::test
