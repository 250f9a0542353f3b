// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/block_cache.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/executor/argument_list.hpp>
#include <rlock/detail/executor/lost_requests.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/net/request.hpp>
#include <rlock/error.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rlock::detail {

class Call;
class Node;
class ParkedCalls;

/// The part of a call that is needed only while a request of it is composed or under way, in one
/// block of memory.
/// It is made when the first request is composed, so that nothing after that needs memory for it,
/// and given back while the call waits without a request.
struct CallRoom final : FromBlockCache<CallRoom> {
  /// The event that a parked call waits for.
  enum class Wait : std::uint8_t { pause, link, kill, memory };

  // The words of the request: CallWords.
  std::size_t idempotencyKeyAt = 0;
  std::size_t publishAt = 0;
  std::optional<std::uint16_t> slot{};
  ArgumentList argv{};
  std::array<char, 128> store;  // as far as `stored`
  std::size_t stored = 0;
  std::vector<std::unique_ptr<std::string>> spilled{};
  std::shared_ptr<const void> kept{};
  Reply reply{};

  // While the dispatcher has it. The node is chosen before it is sent; the rest on the loop
  // thread only.
  Node* node = nullptr;
  Node* answeredBy = nullptr;        // once it is finished
  std::shared_ptr<Node> nodeKept{};  // where nodes come and go
  std::chrono::steady_clock::time_point sendBefore{};
  int attempts = 0;
  int redirections = 0;
  bool asking = false;  // its node has the key ahead of the slot
  bool maybeExecuted = false;
  LostRequests lost{};  // from one request of the call to the next
  /// The script whose text it brings, for others, too, who wait for that; null: none. By the time
  /// that it ends it may have been composed anew for another script.
  const lua::Script* brings = nullptr;
  std::unique_ptr<Timer> timer{};
  ParkedCalls* parkedIn = nullptr;
  IntrusivePtr<net::Request> parkedSelf{};  // while it is parked: the list's reference
  Call* parkedBefore = nullptr;
  Call* parkedAfter = nullptr;
  std::uint64_t parkedNumber = 0;
  Wait waitsFor = Wait::pause;
  std::optional<Error> lastError{};
};

}  // namespace rlock::detail
