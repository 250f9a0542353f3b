// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "integration/lock_harness.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::test {

/// The expiry that Redisson writes for a permit that never expires.
inline constexpr std::int64_t kNever = 922337203685477;

/// The bytes of a permit's id.
inline std::string rawId(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

/// Looks at the server, for the tests of semaphores whose permits expire.
template <class Test>
class PermitChecks : public Test {
 protected:
  using Test::raw;

  static std::string takenKey(const std::string& name) {
    return name.find('{') == std::string::npos ? "{" + name + "}:timeout" : name + ":timeout";
  }
  static std::string semaphoreChannel(const std::string& name) {
    return name.find('{') == std::string::npos ? "redisson_sc:{" + name + "}"
                                               : "redisson_sc:" + name;
  }

  /// Free and taken permits together, at one moment, whatever has expired.
  std::int64_t total(const std::string& name) {
    return raw()
        .eval("return (redis.call('get', KEYS[1]) or 0) + redis.call('zcard', KEYS[2])",
              {name, takenKey(name)})
        .integer();
  }
  std::int64_t taken(const std::string& name) {
    return raw().run({"ZCARD", takenKey(name)}).integer();
  }
  std::string free(const std::string& name) { return raw().get(name).value_or("none"); }
  /// The score as the server writes it; empty: not taken.
  std::optional<std::string> score(const std::string& name, const std::string& id) {
    const Value value = raw().run({"ZSCORE", takenKey(name), rawId(id)});
    return value.isNil() ? std::nullopt : std::optional(value.string());
  }
  std::int64_t serverMs() { return raw().serverTimeUs() / 1000; }
  /// Permits as another client would take them, that have expired.
  void addExpired(const std::string& name, int count) {
    raw().eval(
        "for i = 1, tonumber(ARGV[1]) do"
        "  redis.call('zadd', KEYS[1], 1000 + i, string.format('%016d', i))"
        " end",
        {takenKey(name)},
        {std::to_string(count)});
  }
  /// Waits until the server's clock has passed the lease of a permit.
  void awaitExpiry(const std::string& name, const std::string& id) {
    const std::int64_t expiry = std::stoll(score(name, id).value_or("0"));
    while (serverMs() <= expiry) {
      std::this_thread::sleep_for(1ms);
    }
  }
};

class PermitTest : public PermitChecks<LockTest> {};

/// The same by each of the four faces.
class PermitFaceTest : public PermitTest, public ::testing::WithParamInterface<Face> {
 protected:
  template <class T>
  Result<T> by(Operation<T> operation) {
    return runBy(GetParam(), std::move(operation));
  }
};

}  // namespace rlock::test
