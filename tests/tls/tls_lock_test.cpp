// SPDX-License-Identifier: Apache-2.0

// Locks over encrypted connections: what the other suites show of plain ones, where the stream
// could make a difference.

#include "tls/tls_harness.hpp"

#include <gtest/gtest.h>

namespace rlock::test {
namespace {

class TlsLock : public TlsTest {
 protected:
  /// Many threads of several clients around one resource.
  void contend(const std::string& uri, int threads, int rounds) {
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < 2; ++i) {
      clients.push_back(std::make_unique<Client>(connectTo(uri)));
    }
    Resource resource;
    // Both clients wait and have a connection for messages, however late a thread begins.
    rawHold("contended", "another:1", 60s);
    std::vector<std::future<std::string>> running;
    for (int i = 0; i < threads; ++i) {
      running.push_back(inThread([&, i] {
        RLock lock = clients[static_cast<std::size_t>(i) % clients.size()]->getLock("contended");
        return outcomeOf([&] {
          for (int round = 0; round < rounds; ++round) {
            lock.lock();
            resource.use();
            lock.unlock();
          }
        });
      }));
    }
    for (const auto& client : clients) {
      EXPECT_EVENTUALLY(kLong, client->stats().waiters > 0 && client->stats().channels > 0);
    }
    rawRelease("contended");
    for (auto& one : running) {
      EXPECT_EQ(one.get(), "ok");
    }
    EXPECT_EQ(resource.value(), threads * rounds);
    EXPECT_EQ(resource.overlaps(), 0);
    expectNoKeys();
  }
};

TEST_F(TlsLock, Contention) {
  contend(uriOf(tlsPort()), 8, 40);
}

TEST_F(TlsLock, ContentionInRecordsOfOneByte) {
  const auto front = this->front({.recordSize = 1});
  contend(uriOf(front->port()), 4, 10);
}

TEST_F(TlsLock, ContentionWhileKeysChange) {
  const auto front = this->front({.updateKeysEvery = 100});
  contend(uriOf(front->port()), 4, 25);
  EXPECT_EQ(front->accepted(), 4) << "a connection was lost";
}

TEST_F(TlsLock, TheWatchdogKeepsAHold) {
  Client client = connectTls(kWatchdog);
  RLock lock = client.getLock("kept");
  lock.lock();
  const auto renewals = client.stats().renewals;
  EXPECT_EVENTUALLY(kLong, client.stats().renewals >= renewals + 3);
  EXPECT_EQ(lock.getHoldCount(), 1);
  lock.unlock();
  expectNoKeys();
}

TEST_F(TlsLock, AWaiterIsWokenByAMessage) {
  Client holder = connectTls();
  Client waiter = connectTls();
  RLock held = holder.getLock("passed");
  held.lock();
  auto waiting = inThread([&] { return outcomeOf([&] { waiter.getLock("passed").lock(); }); });
  ASSERT_EVENTUALLY(kLong, raw().publish(channelOf("passed"), "unknown") > 0);
  held.unlock();
  // The safety poll is a minute away.
  ASSERT_TRUE(ready(waiting, kLong));
  EXPECT_EQ(waiting.get(), "ok");
}

TEST_F(TlsLock, Operations) {
  Client client = connectTls();
  std::vector<std::future<void>> all;
  for (int i = 0; i < 200; ++i) {
    RLock lock = client.getLock("many" + std::to_string(i));
    const OwnerId owner = newOwner();
    lock.lockAsync({}, owner).get();
    all.push_back(lock.unlockAsync(owner).toFuture());
  }
  for (auto& one : all) {
    ASSERT_TRUE(ready(one, kLong));
    EXPECT_NO_THROW(one.get());
  }
  expectNoKeys();
}

TEST_F(TlsLock, ConnectionsThatAreCutAreMadeAgain) {
  TcpProxy proxy(tlsPort());
  Client client = connectTo(uriOf(proxy.port()));
  RLock lock = client.getLock("survives");
  lock.lock();
  Client other = connectTo(uriOf(proxy.port()));
  auto waiting = inThread([&] { return outcomeOf([&] { other.getLock("survives").lock(); }); });
  ASSERT_EVENTUALLY(kLong, raw().publish(channelOf("survives"), "unknown") > 0);
  for (int round = 0; round < 5; ++round) {
    proxy.cutAll(round % 2 == 0 ? TcpProxy::CutKind::reset : TcpProxy::CutKind::orderly);
    EXPECT_EQ(outcomeOf([&] { EXPECT_EQ(lock.getHoldCount(), 1); }), "ok");
  }
  ASSERT_EVENTUALLY(kLong, raw().publish(channelOf("survives"), "unknown") > 0);
  lock.unlock();
  ASSERT_TRUE(ready(waiting, kLong));
  EXPECT_EQ(waiting.get(), "ok");
}

TEST_F(TlsLock, AFrozenServerIsNoticed) {
  Options settings = tuned(uriOf(tlsPort()));
  settings.commandTimeout = 1s;
  settings.callTimeout = 2s;
  Client client = Client::connect(settings);
  use(client);
  server().freeze();
  const Stopwatch watch;
  EXPECT_NE(outcomeOf([&] { static_cast<void>(client.getLock("f").tryLock()); }), "ok");
  EXPECT_LT(watch.elapsedMs(), scaled(5s));
  server().thaw();
  RLock again = client.getLock("again");
  EXPECT_EVENTUALLY(kLong, outcomeOf([&] {
                             again.lock();
                             again.unlock();
                           }) == "ok");
}

}  // namespace
}  // namespace rlock::test
