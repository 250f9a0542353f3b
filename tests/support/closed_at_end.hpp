// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/client.hpp>

#include <chrono>

namespace rlock::test {

/// Ends the waits of a client's callers when a test ends early, which then would wait for them. It
/// stands below what those callers' threads are joined by.
class ClosedAtEnd {
 public:
  explicit ClosedAtEnd(Client& client) : client_(client) {}
  ClosedAtEnd(const ClosedAtEnd&) = delete;
  ClosedAtEnd& operator=(const ClosedAtEnd&) = delete;
  ~ClosedAtEnd() { client_.close(std::chrono::milliseconds(0)); }

 private:
  Client& client_;
};

}  // namespace rlock::test
