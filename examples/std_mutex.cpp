// SPDX-License-Identifier: Apache-2.0
// rlock::Mutex works with std::scoped_lock, unique_lock and lock_guard. scoped_lock takes several
// without deadlock, in whatever order they are named.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <iostream>
#include <mutex>
#include <string>
#include <thread>

namespace {

struct Account {
  std::string name;
  int balance = 0;
};

void transfer(rlock::Client& client, Account& from, Account& to, int amount) {
  // A Mutex is one party's grip on a lock: each thread makes its own.
  rlock::Mutex fromMutex(client.getLock("example:account:" + from.name));
  rlock::Mutex toMutex(client.getLock("example:account:" + to.name));
  const std::scoped_lock both(fromMutex, toMutex);
  from.balance -= amount;
  to.balance += amount;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    auto client = rlock::Client::connect(serverUri(argc, argv));
    Account alpha{"alpha", 100};
    Account beta{"beta", 100};
    const auto transfers = [&client](Account& from, Account& to) {
      try {
        for (int i = 0; i < 20; ++i) {
          transfer(client, from, to, 1);
        }
      } catch (const rlock::Error& error) {
        std::cerr << error.what() << '\n';
      }
    };
    {
      const std::jthread there(transfers, std::ref(alpha), std::ref(beta));
      const std::jthread back(transfers, std::ref(beta), std::ref(alpha));
    }
    std::cout << "alpha " << alpha.balance << ", beta " << beta.balance << ", together "
              << alpha.balance + beta.balance << '\n';
    return alpha.balance + beta.balance == 200 ? 0 : 1;
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
