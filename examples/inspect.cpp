// SPDX-License-Identifier: Apache-2.0
// Shows what an operator can see of holds and waiters, and how a stuck lock is freed.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <chrono>
#include <iostream>
#include <thread>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
  try {
    auto service = rlock::Client::connect(serverUri(argc, argv));
    rlock::AcquireOptions options;
    options.label = "invoice run";
    rlock::Lease lease = service.getLock("example:invoices").acquire(options);

    auto office = rlock::Client::connect(serverUri(argc, argv));
    // The label is written a moment after the lock was taken.
    std::this_thread::sleep_for(200ms);
    for (const rlock::LockInfo& info : office.list("example:*")) {
      std::cout << info.name << " (" << toString(info.kind) << ")\n";
      for (const rlock::LockHolder& holder : info.holders) {
        std::cout << "  held " << holder.holds << " times by " << holder.owner << " \""
                  << holder.label << "\"\n";
      }
    }

    office.getLock("example:invoices").forceUnlock();
    for (int i = 0; i < 1000 && lease.held(); ++i) {
      std::this_thread::sleep_for(1ms);
    }
    std::cout << "the holder was told: " << toString(lease.lossReason()) << '\n';
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
