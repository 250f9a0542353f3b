// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/dispatcher.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// Takes a lock, and may be repeated.
class TakingCall final : public Call {
 public:
  TakingCall() {
    setCommand({"TAKE", "key"});
    setLate(Late::adds);
    setRepeatable(true);
    setSlot(7);
  }

  std::optional<Outcome> outcome;

 private:
  void finished(Outcome end) noexcept override { outcome = std::move(end); }
};

/// Notes which connections were told, and ignores the rest.
class NotedEvents final : public DispatcherEvents {
 public:
  void reconnected(bool replaced) override { told.push_back(replaced); }
  void channelConfirmed(const std::string& /*channel*/) override {}
  void channelRefused(const std::string& /*channel*/, const Error& /*error*/) override {}
  void channelMessage(const std::string& /*channel*/, std::string_view /*payload*/) override {}
  void channelsLost() override {}
  void channelLost(const std::string& /*channel*/) override {}

  std::vector<bool> told;  ///< of each, whether it was to another process than before
};

}  // namespace rlock::detail
