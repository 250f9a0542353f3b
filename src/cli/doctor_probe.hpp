// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/descriptor.hpp"
#include "cli/doctor_report.hpp"
#include <rlock/options.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace rlock::cli {

/// A connection of its own, without encryption, for the few questions that a client does not ask.
/// Blocks; one thread at a time. An answer that does not come in time is empty.
class Probe {
 public:
  /// @param patience  for connecting and for each answer
  Probe(const Endpoint& endpoint, std::chrono::milliseconds patience);

  [[nodiscard]] bool connected() const noexcept { return static_cast<bool>(socket_); }
  /// Sends the line, and returns the bytes that come next, as they are.
  [[nodiscard]] std::string ask(std::string_view line);
  /// The text of a bulk reply; empty for any other.
  [[nodiscard]] std::optional<std::string> askForText(std::string_view line);
  /// Gives user name and password, if there are any.
  void authenticate(const Options& options);

 private:
  bool waitFor(short events) const;

  Descriptor socket_;
  std::chrono::milliseconds patience_;
};

/// Makes a connection to see what listens at the address.
[[nodiscard]] Peer lookAt(const Endpoint& endpoint);

}  // namespace rlock::cli
