// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/raw_redis.hpp"
#include <rlock/detail/executor/lua_scripts.hpp>

#include <cstdint>
#include <string>

namespace rlock::test {

/// The resource that a fenced lock protects: a value at a server of its own, which refuses whoever
/// comes with an older token than it has seen. It knows nothing of locks.
class FencedResource {
 public:
  /// @param port  of the server that has the value
  explicit FencedResource(std::uint16_t port) : server_(port) {}

  /// Whether it was written.
  bool write(std::uint64_t token, const std::string& value) {
    return server_
               .eval(rlock::detail::lua::fenced_write.body,
                     {"{resource}value", "{resource}token"},
                     {std::to_string(token), value})
               .integer() == 1;
  }
  [[nodiscard]] std::string value() { return server_.get("{resource}value").value_or(""); }

 private:
  RawRedis server_;
};

}  // namespace rlock::test
