// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/net/transport.hpp>

#include <span>
#include <string_view>

namespace rlock::detail {

/// A connection that takes no request, and is up when the test says so.
class IdleLink : public net::CommandTransport {
 public:
  void open() override { opened = true; }
  void close() noexcept override {}
  bool submit(net::Request& /*request*/,
              std::span<const std::string_view> /*argv*/,
              Mode /*mode*/) override {
    return false;
  }
  Awaited await(net::Request& /*request*/, Clock::time_point /*deadline*/) override {
    return Awaited::timedOut;
  }
  void distrust() noexcept override {}
  void abandon(Clock::time_point /*since*/, Errc /*errc*/, const char* /*what*/) noexcept override {
  }
  [[nodiscard]] bool up() const noexcept override { return isUp; }
  [[nodiscard]] Totals totals() const noexcept override { return sums; }

  Totals sums{};
  bool opened = false;
  bool isUp = false;
};

}  // namespace rlock::detail
