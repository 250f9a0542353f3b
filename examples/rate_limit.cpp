// SPDX-License-Identifier: Apache-2.0
// At most five requests in any half second, from however many processes: a permit is taken for each
// and never given back, and comes back by itself when its lease is over.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

namespace {

constexpr int kAtOnce = 5;
constexpr auto kPeriod = 500ms;
constexpr int kRequests = 4 * kAtOnce;

/// Sends requests as fast as it is allowed to, until all services together have sent enough.
void serve(rlock::PermitExpirableSemaphore limit, std::atomic<int>& begun) {
  try {
    while (begun.load() < kRequests) {
      if (limit.tryAcquire(2s, kPeriod)) {
        begun.fetch_add(1);  // and the request is sent
      }
    }
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string uri = serverUri(argc, argv);
    std::array clients{rlock::Client::connect(uri), rlock::Client::connect(uri)};
    auto limit = clients[0].getPermitExpirableSemaphore("example:rate-limit");
    limit.setPermits(kAtOnce);

    std::atomic<int> begun = 0;
    const auto start = std::chrono::steady_clock::now();
    {
      std::vector<std::jthread> services;
      for (rlock::Client& client : clients) {
        services.emplace_back(
            serve, client.getPermitExpirableSemaphore("example:rate-limit"), std::ref(begun));
      }
    }
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - start);
    limit.remove();
    std::cout << begun << " requests in " << took.count() << " ms\n";
    // Five at once, and five more after each half second. The server counts whole milliseconds.
    const bool sent = begun >= kRequests;
    return sent && took >= (kRequests / kAtOnce - 1) * (kPeriod - 2ms) ? 0 : 1;
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
