// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/arguments.hpp"
#include "cli/descriptor.hpp"
#include <rlock/client.hpp>
#include <rlock/lease.hpp>

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace rlock::cli {

/// Something to poll that becomes readable once.
class Event {
 public:
  Event();
  void set() const noexcept;
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }

 private:
  Descriptor descriptor_;
};

/// A lock or permit that is held, and the clients that keep it.
struct Held {
  std::vector<std::shared_ptr<Client>> clients{};  // outlive the lease
  Lease lease{};
  std::string owner{};     ///< owner field; id of a permit
  std::string permitId{};  ///< empty: no permit
  /// How long a hold is valid when it is fresh.
  std::chrono::milliseconds span{};
};

/// Connecting and acquiring on a thread of its own, so that this one can read signals meanwhile.
///
/// One thread at a time.
class Acquisition {
 public:
  /// Starts. Until the result is there, `arguments` must live.
  Acquisition(const Arguments& arguments, std::string label);
  Acquisition(const Acquisition&) = delete;
  Acquisition& operator=(const Acquisition&) = delete;
  /// Asks the call to end and waits for it.
  ~Acquisition();

  /// Readable when the result is there.
  [[nodiscard]] int descriptor() const noexcept { return done_->descriptor(); }
  /// Ends the call; nothing is held then.
  void stop() noexcept { stop_.request_stop(); }
  /// Whether there is a connection, from when on an interrupted call may have something to give
  /// back.
  [[nodiscard]] bool connected() const noexcept { return shared_->connected.load(); }
  /// The client to ask about the holder with; null before connected().
  [[nodiscard]] std::shared_ptr<Client> client() const {
    return connected() ? shared_->first : nullptr;
  }

  /// Empty: another owner held the lock all the time. Throws what the call has thrown. Blocks until
  /// it is there.
  std::optional<Held> result();

 private:
  struct Shared {
    std::atomic<bool> connected{false};
    std::shared_ptr<Client> first;
  };

  std::shared_ptr<Event> done_;
  std::shared_ptr<Shared> shared_;
  std::stop_source stop_;
  std::future<std::optional<Held>> future_;
  std::thread thread_;
};

}  // namespace rlock::cli
