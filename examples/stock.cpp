// SPDX-License-Identifier: Apache-2.0
// A shop sells what it has in stock, by a service of several processes. Each reads the stock,
// charges the customer, and writes the stock less one. Two that read the same number sell the same
// piece: without a lock the shop sells more than it has, with one it does not.
#include "processes.hpp"
#include "redis.hpp"
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

namespace {

constexpr std::string_view kUsage = R"(Usage: stock [URI]

Four processes sell 100 pieces to 200 customers, first without a lock, then with one.

URI: of the Redis server; by default RLOCK_URI, else redis://127.0.0.1:6379
Exit status: 0 if too many were sold without the lock and exactly as many as there were with it,
else 1.
)";

constexpr int kProcesses = 4;
constexpr int kStock = 100;
constexpr int kCustomers = 200;

/// One process of the service: serves the customers in the queue until the shop closes.
class Service {
 public:
  Service(const std::string& uri, const std::string& shop, bool useLock)
      : shop_(shop),
        useLock_(useLock),
        redis_(uri),
        client_(rlock::Client::connect(uri)),
        // One lock for each product: the sale of another one is not held up.
        lock_(client_.getLock(shop + ":lock")) {}

  void run() {
    redis_.command({"INCR", shop_ + ":open"});
    // The queue gives each customer to one process. Its answer is a pair, the queue and the
    // customer.
    while (redis_.list({"BLPOP", shop_ + ":queue", "0"}).at(1) != "closed") {
      if (sell()) {
        redis_.command({"INCR", shop_ + ":sold"});
      }
    }
  }

 private:
  bool sell() {
    // The lock is kept until the end of this block.
    std::optional<rlock::Lease> lease;
    if (useLock_) {
      lease = lock_.acquire();
    }
    const long long left = redis_.number({"GET", shop_ + ":stock"});
    if (left == 0) {
      return false;
    }
    std::this_thread::sleep_for(1ms);  // the customer pays
    if (lease && !lease->held()) {
      return false;  // a pause as long as the lease: what was read may be out of date by now
    }
    redis_.command({"SET", shop_ + ":stock", std::to_string(left - 1)});
    return true;
  }

  const std::string shop_;
  const bool useLock_;
  Redis redis_;
  rlock::Client client_;
  rlock::RLock lock_;
};

/// The load generator: opens a shop, sends the customers, and counts at the end.
/// @returns how many pieces too many were sold
long long trade(Redis& redis, const std::string& lock) {
  const std::string shop = uniqueName("example:stock");
  redis.command({"SET", shop + ":stock", std::to_string(kStock)});
  std::vector<Process> service;
  for (int i = 0; i < kProcesses; ++i) {
    service.emplace_back(std::vector<std::string>{"--serve", shop, lock});
  }
  waitUntil("all processes are ready", [&] {
    return redis.number({"GET", shop + ":open"}) == kProcesses;
  });

  const auto start = std::chrono::steady_clock::now();
  for (int customer = 1; customer <= kCustomers; ++customer) {
    redis.command({"RPUSH", shop + ":queue", std::to_string(customer)});
  }
  for (int i = 0; i < kProcesses; ++i) {
    redis.command({"RPUSH", shop + ":queue", "closed"});
  }
  for (Process& process : service) {
    if (process.wait() != 0) {
      throw std::runtime_error("a process of the service failed");
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;

  const long long sold = redis.number({"GET", shop + ":sold"});
  const long long oversold = sold - kStock;
  say(lock + ": " + std::to_string(sold) + " sold, " + std::to_string(oversold) +
      " too many; the stock says " + redis.command({"GET", shop + ":stock"}) + " are left; " +
      std::to_string(static_cast<int>(kCustomers / took.count())) + " customers a second");
  redis.command({"DEL", shop + ":stock", shop + ":open", shop + ":sold"});
  return oversold;
}

int run(const std::string& uri) {
  ::setenv("RLOCK_URI", uri.c_str(), 1);  // for the processes; not as an argument, for a password
  Redis redis(uri);
  say(std::to_string(kProcesses) + " processes sell " + std::to_string(kStock) + " pieces to " +
      std::to_string(kCustomers) + " customers");
  const bool soldTooMany = trade(redis, "without a lock") > 0;
  const bool soldAll = trade(redis, "with a lock") == 0;
  return soldTooMany && soldAll ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 3 && arguments[0] == "--serve") {
      Service(serverUri(1, argv), arguments[1], arguments[2] == "with a lock").run();
      return 0;
    }
    if (arguments == std::vector<std::string>{"--help"}) {
      std::cout << kUsage;
      return 0;
    }
    return run(serverUri(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "stock: " << error.what() << '\n';
    return 1;
  }
}
