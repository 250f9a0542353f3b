// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "baseline.hpp"
#include "bench.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace rlock::bench {

/// The least work a client can do: prebuilt requests of rlock's protocol written to sockets as
/// replies come in. The rate it reaches is about the server's own limit.
class RawPipeline {
 public:
  RawPipeline(const Context& context, const Scripts& scripts, int connections, int inFlight);
  RawPipeline(const RawPipeline&) = delete;
  RawPipeline& operator=(const RawPipeline&) = delete;
  ~RawPipeline();

  /// Lock and unlock together count as one.
  [[nodiscard]] std::uint64_t pairs() const { return pairs_.load(std::memory_order_relaxed); }
  /// Throws when something went wrong.
  void check() const;

 private:
  struct Link;

  void run();
  void exchange(Link& link);

  std::vector<std::unique_ptr<Link>> links_;
  std::atomic<std::uint64_t> pairs_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  int epoll_ = -1;
  std::thread thread_;
};

}  // namespace rlock::bench
