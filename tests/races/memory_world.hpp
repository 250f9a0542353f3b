// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/loop.hpp"
#include "testing/redis_model.hpp"
#include <rlock/client.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/options.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::races {

/// A Redis in this process for clients on real threads: no socket, no system call but those of
/// sleeping threads, so that a round of two calls takes microseconds.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class RaceServer {
 public:
  using ClientId = sim::RedisModel::ClientId;
  using Listener = std::function<void(std::string channel, std::string payload)>;

  RaceServer();

  ClientId connect();
  /// Its messages go to `listener`, on the thread that publishes.
  ClientId connectListener(Listener listener);
  void disconnect(ClientId client);
  [[nodiscard]] bool connected(ClientId client);
  [[nodiscard]] std::string runId();
  detail::Reply execute(ClientId client, std::span<const std::string_view> argv);

  /// A command of the test itself.
  detail::Reply command(std::initializer_list<std::string_view> argv);
  [[nodiscard]] std::string dump();

 private:
  struct Message {
    std::shared_ptr<Listener> to;
    std::string channel;
    std::string payload;
  };

  std::mutex mutex_;
  sim::RedisModel model_;
  std::map<ClientId, std::shared_ptr<Listener>> listeners_;
  std::vector<Message> published_;
  ClientId own_ = 0;
};

/// How the connections of a client behave. Read at each request.
struct Weather {
  /// Of 1,000 requests so many are executed on the loop thread later on, and not at once.
  std::atomic<unsigned> late{0};
  /// Of 1,000 requests so many are lost with their connection, executed or not.
  std::atomic<unsigned> lost{0};
};

/// The client, on a loop thread of its own, connected to `server`. Both must outlive it.
Client memoryClient(RaceServer& server, Weather& weather, const Options& options);

}  // namespace rlock::races
