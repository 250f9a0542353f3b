// SPDX-License-Identifier: Apache-2.0
// Metrics for Prometheus: three services contend for a few locks, and http://ADDRESS/metrics shows
// how that goes. docs/grafana/rlock-dashboard.json shows it in Grafana.
//
// Usage: prometheus [--listen ADDRESS] [--seconds N] [URI]
#include "server_uri.hpp"
#include <rlock/prometheus.hpp>
#include <rlock/rlock.hpp>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <prometheus/exposer.h>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

namespace {

/// Takes one of two locks again and again. Now and then its time is too short.
void contend(rlock::Client& client, std::chrono::steady_clock::time_point until) {
  for (int turn = 0; std::chrono::steady_clock::now() < until; ++turn) {
    rlock::RLock lock = client.getLock(turn % 3 == 0 ? "example:reports" : "example:orders");
    if (lock.tryLock(turn % 7 == 0 ? 1ms : 1s)) {
      std::this_thread::sleep_for(5ms);
      lock.unlock();
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::string listen = "127.0.0.1:0";
    int seconds = 2;
    while (argc > 2 && std::string_view(argv[1]).starts_with("--")) {
      if (std::string_view(argv[1]) == "--listen") {
        listen = argv[2];
      } else {
        seconds = std::atoi(argv[2]);
      }
      argc -= 2;
      argv += 2;
    }

    rlock::prometheus::CollectorOptions shown;
    shown.topNames = 5;
    const auto collector = std::make_shared<rlock::prometheus::Collector>(shown);
    ::prometheus::Exposer exposer(listen);
    exposer.RegisterCollectable(collector);
    std::cout << "port " << exposer.GetListeningPorts().at(0) << std::endl;

    rlock::Options options = rlock::Options::fromUri(serverUri(argc, argv));
    options.observer = collector->observer();
    options.topNames = 20;
    options.watchdogTimeout = 3s;
    std::vector<rlock::Client> clients;
    for (int i = 0; i < 3; ++i) {
      clients.push_back(rlock::Client::connect(options));
    }
    // They stay where they are from here on.
    for (std::size_t i = 0; i < clients.size(); ++i) {
      collector->add(clients[i], "service-" + std::to_string(i + 1));
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    // One that is renewed, and one whose lease ends too early.
    const rlock::Lease kept = clients[0].getLock("example:kept").acquire();
    rlock::AcquireOptions brief;
    brief.lease = 200ms;
    const rlock::Lease lost = clients[1].getFairLock("example:brief").acquire(brief);
    {
      std::vector<std::jthread> threads;
      for (rlock::Client& client : clients) {
        threads.emplace_back([&] { contend(client, until); });
      }
    }
    for (const rlock::Client& client : clients) {
      collector->remove(client);
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
