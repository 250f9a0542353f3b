// SPDX-License-Identifier: Apache-2.0

// The shared connection beside servers and loops that take their time, or no notice.

#include "integration/link_harness.hpp"

#include <gtest/gtest.h>

#include <sys/ioctl.h>

namespace rlock::test {
namespace {

using Mode = CommandLink::Mode;
using Clock = std::chrono::steady_clock;
using Delivery = Request::Delivery;

const FakeServer::Handler kEchoes = [](FakeServer::Peer& peer, const FakeServer::Argv& /*argv*/) {
  return peer.send("+OK\r\n");
};

TEST(CommandLinkLoop, ASlowCompletionDelaysNoOtherThread) {
  FakeServer server(kEchoes);
  std::atomic<bool> inside{false};
  std::atomic<bool> leave{false};
  const std::chrono::milliseconds replyTimeout = scaled(700ms);
  LinkHarness harness(server.port(), [&](LinkSettings& s) { s.replyTimeout = replyTimeout; });
  const SetAtEnd leaving(leave);
  ASSERT_TRUE(harness.waitUntilUp());
  const auto slow = makeIntrusive<TestRequest>([&] {
    inside = true;
    const Deadline deadline(kLong);
    while (!leave && !deadline.expired()) {
      std::this_thread::sleep_for(1ms);
    }
  });
  harness.submit(*slow, {"WORK"}, Mode::background);
  ASSERT_EVENTUALLY(kLong, inside.load());
  // Longer than the reply timeout: neither these nor the connection may suffer.
  const Clock::time_point end = Clock::now() + 2 * replyTimeout;
  int answered = 0;
  while (Clock::now() < end) {
    const auto mine = makeIntrusive<TestRequest>();
    ASSERT_TRUE(harness.submit(*mine, {"WORK"}, Mode::awaited));
    ASSERT_EQ(harness.link().await(*mine, Clock::now() + scaled(5s)),
              CommandLink::Awaited::complete);
    ASSERT_EQ(mine->delivery(), Delivery::replied);
    ++answered;
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_GT(answered, 10);
  leave = true;
  EXPECT_EVENTUALLY(kLong, slow->isCompleted());
  EXPECT_EQ(server.accepted(), 1U);
}

// Timers, sockets and what others have left to the loop get their turn in between.
TEST(CommandLinkLoop, ManyCompletionsLeaveTheLoopToOthersInBetween) {
  constexpr std::size_t kRequests = 60;
  // Used by the loop until the link ends.
  std::atomic<std::size_t> completed{0};
  std::atomic<std::size_t> atOthersTurn{0};
  std::vector<IntrusivePtr<TestRequest>> requests;
  std::size_t asked = 0;  // by the only connection's thread
  FakeServer server([&](FakeServer::Peer& peer, const FakeServer::Argv& /*argv*/) {
    if (++asked < kRequests) {
      return true;
    }
    std::string all;
    for (std::size_t i = 0; i < kRequests; ++i) {
      all += "+OK\r\n";
    }
    // All of them are complete at once.
    return peer.send(all);
  });
  LinkHarness harness(server.port(), [](LinkSettings& s) { s.replyTimeout = scaled(10s); });
  ASSERT_TRUE(harness.waitUntilUp());
  for (std::size_t i = 0; i < kRequests; ++i) {
    requests.push_back(makeIntrusive<TestRequest>([&] {
      if (completed++ == 0) {
        harness.loop().loop()->post([&] { atOthersTurn = completed.load(); });
      }
      std::this_thread::sleep_for(1ms);
    }));
    ASSERT_TRUE(harness.submit(*requests.back(), {"WORK"}, Mode::background));
  }
  ASSERT_EVENTUALLY(kLong, requests.back()->isCompleted() && atOthersTurn > 0);
  EXPECT_EQ(completed, kRequests);
  EXPECT_LT(atOthersTurn, kRequests);
  EXPECT_EQ(server.accepted(), 1U);
}

TEST(CommandLinkLoop, WhatCouldNotBeWrittenIsWrittenWhileTheLoopIsBusy) {
  std::atomic<bool> read{false};
  FakeServer server([&](FakeServer::Peer& peer, const FakeServer::Argv& argv) {
    if (argv[0] == "HOLD") {
      peer.send("+OK\r\n");
      const Deadline deadline(kLong);
      while (!read && !deadline.expired()) {
        std::this_thread::sleep_for(1ms);
      }
      return true;
    }
    return peer.send("+OK\r\n");
  });
  std::atomic<bool> leave{false};
  std::atomic<bool> inside{false};
  LinkHarness harness(server.port(), [](LinkSettings& s) { s.replyTimeout = scaled(3s); });
  const SetAtEnd leaving(leave);
  ASSERT_TRUE(harness.waitUntilUp());
  // The loop is busy from here on with what completes the first request.
  const auto slow = makeIntrusive<TestRequest>([&] {
    inside = true;
    const Deadline deadline(kLong);
    while (!leave && !deadline.expired()) {
      std::this_thread::sleep_for(1ms);
    }
  });
  harness.submit(*slow, {"HOLD"}, Mode::background);
  ASSERT_EVENTUALLY(kLong, inside.load());
  const std::string large(std::size_t{16} << 20, 'x');
  const auto burst = makeIntrusive<TestRequest>();
  ASSERT_TRUE(harness.submit(*burst, {"WORK", large}, Mode::background));
  const auto mine = makeIntrusive<TestRequest>();
  ASSERT_TRUE(harness.submit(*mine, {"WORK"}, Mode::awaited));
  read = true;
  EXPECT_EQ(harness.link().await(*mine, Clock::now() + scaled(2s)), CommandLink::Awaited::complete);
  EXPECT_EQ(mine->delivery(), Delivery::replied);
  leave = true;
  EXPECT_EVENTUALLY(kLong, burst->isCompleted());
  EXPECT_EQ(server.accepted(), 1U);
}

TEST(CommandLinkLoop, OneEventDoesNotStopTheOthersFromBeingWatched) {
  std::atomic<int> stage{0};
  const auto waitFor = [&](int wanted) {
    const Deadline deadline(kLong);
    while (stage < wanted && !deadline.expired()) {
      std::this_thread::sleep_for(1ms);
    }
  };
  FakeServer server([&](FakeServer::Peer& peer, const FakeServer::Argv& argv) {
    if (argv[0] == "HOLD") {
      // Nothing is read meanwhile, so the client's socket is full.
      waitFor(1);
      peer.send("+OK\r\n");
      waitFor(2);
      return true;
    }
    return peer.send("+OK\r\n");
  });
  LinkHarness harness(server.port(), [](LinkSettings& s) { s.replyTimeout = scaled(3s); });
  ASSERT_TRUE(harness.waitUntilUp());
  const auto first = makeIntrusive<TestRequest>();
  const auto burst = makeIntrusive<TestRequest>();
  const std::string large(std::size_t{16} << 20, 'x');
  harness.submit(*first, {"HOLD"}, Mode::background);
  ASSERT_TRUE(harness.submit(*burst, {"WORK", large}, Mode::background));
  // A caller reads while the loop waits for input and for room.
  const auto mine = makeIntrusive<TestRequest>();
  ASSERT_TRUE(harness.submit(*mine, {"WORK"}, Mode::awaited));
  std::thread caller([&] {
    EXPECT_EQ(harness.link().await(*mine, Clock::now() + scaled(2s)),
              CommandLink::Awaited::complete);
    EXPECT_EQ(mine->delivery(), Delivery::replied);
  });
  std::this_thread::sleep_for(20ms);
  stage = 1;
  EXPECT_EVENTUALLY(kLong, first->isCompleted());
  stage = 2;
  caller.join();
  EXPECT_EVENTUALLY(kLong, burst->isCompleted());
  EXPECT_EQ(server.accepted(), 1U);
}

TEST(CommandLinkLife, BytesThatNeverBecomeAReplyAreNoSignOfLife) {
  FakeServer server([&](FakeServer::Peer& peer, const FakeServer::Argv& /*argv*/) {
    bool open = peer.send("$1000000\r\n");
    while (open) {
      open = peer.send("x");
      std::this_thread::sleep_for(4ms);
    }
    return false;
  });
  LinkHarness harness(server.port());
  ASSERT_TRUE(harness.waitUntilUp());
  const Stopwatch watch;
  const auto background = makeIntrusive<TestRequest>();
  harness.submit(*background, {"WORK"}, Mode::background);
  EXPECT_EVENTUALLY(kLong, background->isCompleted());
  EXPECT_EQ(background->delivery(), Delivery::lost);
  EXPECT_LT(watch.elapsedMs(), scaled(600ms));

  ASSERT_TRUE(harness.waitUntilUp());
  const Stopwatch second;
  const auto awaited = makeIntrusive<TestRequest>();
  ASSERT_TRUE(harness.submit(*awaited, {"WORK"}, Mode::awaited));
  EXPECT_EQ(harness.link().await(*awaited, Clock::now() + kLong), CommandLink::Awaited::complete);
  EXPECT_EQ(awaited->delivery(), Delivery::lost);
  EXPECT_LT(second.elapsedMs(), scaled(600ms));
}

TEST(CommandLinkLife, RepliesToOthersKeepALongQueueAlive) {
  FakeServer server([](FakeServer::Peer& peer, const FakeServer::Argv& /*argv*/) {
    std::this_thread::sleep_for(70ms);
    return peer.send("+OK\r\n");
  });
  LinkHarness harness(server.port(), [](LinkSettings& s) { s.replyTimeout = 1s; });
  ASSERT_TRUE(harness.waitUntilUp());
  // Twice the reply timeout in all, though none of them waits alone for that long.
  std::vector<IntrusivePtr<TestRequest>> requests;
  for (int i = 0; i < 30; ++i) {
    requests.push_back(makeIntrusive<TestRequest>());
    ASSERT_TRUE(harness.submit(*requests.back(), {"WORK"}, Mode::background));
  }
  EXPECT_EVENTUALLY(kLong, requests.back()->isCompleted());
  EXPECT_EQ(requests.back()->delivery(), Delivery::replied);
  EXPECT_EQ(server.accepted(), 1U);
}

TEST(CommandLinkLife, AServerThatClosesOnWorkIsDialledWithGrowingPauses) {
  FakeServer server(
      [](FakeServer::Peer& /*peer*/, const FakeServer::Argv& /*argv*/) { return false; });
  // Filled by the loop until the link ends.
  std::vector<IntrusivePtr<TestRequest>> requests;
  LinkHarness harness(server.port(), [](LinkSettings& s) {
    s.reconnectDelayMin = 20ms;
    s.reconnectDelayMax = 2000ms;
  });
  const auto send = [&] {
    requests.push_back(makeIntrusive<TestRequest>());
    harness.submit(*requests.back(), {"WORK"}, Mode::background);
  };
  harness.whenUp(send);
  // It may have been up before that.
  harness.loop().run(send);
  std::this_thread::sleep_for(1s);
  // 10, 20, 40, ... ms at least.
  EXPECT_LE(server.accepted(), 9U);
  EXPECT_GE(server.accepted(), 2U);
}

TEST(CommandLinkLife, AfterARealReplyTheNextConnectionIsMadeAtOnce) {
  FakeServer server([](FakeServer::Peer& peer, const FakeServer::Argv& argv) {
    return argv[0] == "WORK" && peer.send("+OK\r\n");
  });
  LinkHarness harness(server.port(), [](LinkSettings& s) {
    s.replyTimeout = scaled(5s);
    // At least half of it is waited for, which is longer than the test waits for the connection.
    s.reconnectDelayMin = scaled(60s);
    s.reconnectDelayMax = scaled(60s);
  });
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(harness.waitUntilUp());
    const auto useful = makeIntrusive<TestRequest>();
    ASSERT_TRUE(harness.submit(*useful, {"WORK"}, Mode::awaited));
    ASSERT_EQ(harness.link().await(*useful, Clock::now() + kLong), CommandLink::Awaited::complete);
    ASSERT_EQ(useful->delivery(), Delivery::replied);
    const auto fatal = makeIntrusive<TestRequest>();
    ASSERT_TRUE(harness.submit(*fatal, {"CLOSE"}, Mode::awaited));
    ASSERT_EQ(harness.link().await(*fatal, Clock::now() + kLong), CommandLink::Awaited::complete);
    ASSERT_EQ(fatal->delivery(), Delivery::lost);
  }
  EXPECT_TRUE(harness.waitUntilUp());
}

// It was of no use, but is no part of a storm either.
TEST(CommandLinkLife, AfterAConnectionThatHasLastedTheNextIsMadeAtOnce) {
  FakeServer server(
      [](FakeServer::Peer& /*peer*/, const FakeServer::Argv& /*argv*/) { return false; });
  constexpr std::chrono::milliseconds kDelay{1000};
  LinkHarness harness(server.port(), [&](LinkSettings& s) {
    s.replyTimeout = scaled(5s);
    s.reconnectDelayMin = kDelay;
    s.reconnectDelayMax = kDelay;
  });
  // At least half of the delay would be waited for each time; one round that is quicker is enough,
  // for a slow host may take as long.
  Clock::duration quickest = kDelay;
  for (int round = 0; round < 5 && quickest >= kDelay / 2; ++round) {
    ASSERT_TRUE(harness.waitUntilUp());
    std::this_thread::sleep_for(kDelay + 50ms);
    const std::size_t before = server.accepted();
    const Clock::time_point ends = Clock::now();
    const auto fatal = makeIntrusive<TestRequest>();
    ASSERT_TRUE(harness.submit(*fatal, {"CLOSE"}, Mode::awaited));
    ASSERT_EQ(harness.link().await(*fatal, Clock::now() + kLong), CommandLink::Awaited::complete);
    ASSERT_EQ(fatal->delivery(), Delivery::lost);
    ASSERT_EVENTUALLY(kLong, server.accepted() > before);
    quickest = std::min(quickest, Clock::now() - ends);
  }
  EXPECT_LT(quickest, kDelay / 2);
}

TEST(CommandLinkLife, AnAddressThatTakesNoWritesIsDialledAfterTheOthers) {
  const FakeServer first(kEchoes);
  const FakeServer second(kEchoes);
  LinkHarness harness(first.port(),
                      [&](LinkSettings& s) { s.endpoints.push_back(tcp(second.port())); });
  ASSERT_TRUE(harness.waitUntilUp());
  harness.link().abandon(Clock::now(), Errc::readOnly, "the server takes no writes any more");
  EXPECT_EVENTUALLY(kLong, second.accepted() > 0);
}

// A proxy that was started again, say: only a new connection is authenticated.
const FakeServer::Handler kForgets = [](FakeServer::Peer& peer, const FakeServer::Argv& argv) {
  return peer.send(argv[0] == "FORGOTTEN" ? "-NOAUTH Authentication required.\r\n" : "+OK\r\n");
};

TEST(CommandLinkLife, AServerThatAsksForTheAuthenticationAgainIsConnectedToAnew) {
  FakeServer server(kForgets);
  LinkHarness harness(server.port(), [](LinkSettings& s) { s.replyTimeout = scaled(5s); });
  std::size_t connections = 1;
  for (const Mode mode : {Mode::awaited, Mode::background}) {
    ASSERT_TRUE(harness.waitUntilUp());
    EXPECT_EQ(server.accepted(), connections);
    const auto refused = makeIntrusive<TestRequest>();
    ASSERT_TRUE(harness.submit(*refused, {"FORGOTTEN"}, mode));
    if (mode == Mode::awaited) {
      ASSERT_EQ(harness.link().await(*refused, Clock::now() + kLong),
                CommandLink::Awaited::complete);
    } else {
      ASSERT_EVENTUALLY(kLong, refused->isCompleted());
    }
    EXPECT_EQ(refused->delivery(), Delivery::replied) << "it is known that it was not executed";
    EXPECT_EQ(refused->reply().text, "NOAUTH Authentication required.");
    ASSERT_EVENTUALLY(kLong, server.accepted() == connections + 1);
    ++connections;
    ASSERT_TRUE(harness.waitUntilUp());
    const auto next = makeIntrusive<TestRequest>();
    ASSERT_TRUE(harness.submit(*next, {"WORK"}, Mode::awaited));
    ASSERT_EQ(harness.link().await(*next, Clock::now() + kLong), CommandLink::Awaited::complete);
    EXPECT_EQ(next->delivery(), Delivery::replied);
    EXPECT_EQ(next->reply().text, "OK");
  }
  EXPECT_EQ(harness.downs(), 2);
}

// A proxy may have forgotten it at one of several servers, and have answers of the others.
TEST(CommandLinkLife, AServerThatAsksForTheAuthenticationForGoodIsDialledWithGrowingPauses) {
  FakeServer server(kForgets);
  LinkHarness harness(server.port(), [](LinkSettings& s) {
    s.replyTimeout = scaled(5s);
    s.reconnectDelayMin = 200ms;
    // Longer than any connection here lasts.
    s.reconnectDelayMax = scaled(60s);
  });
  for (const std::chrono::milliseconds pause : {200ms, 400ms, 800ms}) {
    ASSERT_TRUE(harness.waitUntilUp());
    const auto useful = makeIntrusive<TestRequest>();
    ASSERT_TRUE(harness.submit(*useful, {"WORK"}, Mode::awaited));
    ASSERT_EQ(harness.link().await(*useful, Clock::now() + kLong), CommandLink::Awaited::complete);
    ASSERT_EQ(useful->delivery(), Delivery::replied);
    const Stopwatch watch;
    const auto refused = makeIntrusive<TestRequest>();
    ASSERT_TRUE(harness.submit(*refused, {"FORGOTTEN"}, Mode::awaited));
    ASSERT_EQ(harness.link().await(*refused, Clock::now() + kLong), CommandLink::Awaited::complete);
    ASSERT_TRUE(harness.waitUntilUp());
    EXPECT_GE(watch.elapsedMs(), pause / 2);
  }
}

// Each request would have the reply to the one before it, for ever: its own is there a moment
// later.
TEST(CommandLinkLife, AReplyThatComesTwiceEndsAConnectionThatIsUsedOften) {
  std::atomic<bool> taken{false};
  std::atomic<bool> sent{false};
  FakeServer server([&](FakeServer::Peer& peer, const FakeServer::Argv& argv) {
    if (argv[0] != "TWICE") {
      // So that it is not read together with the reply that stands before it.
      std::this_thread::sleep_for(20ms);
      return peer.send("+OK\r\n");
    }
    peer.send("+FIRST\r\n");
    const Deadline deadline(kLong);
    while (!taken && !deadline.expired()) {
      std::this_thread::sleep_for(1ms);
    }
    const bool open = peer.send("+FIRST\r\n");
    sent = true;
    return open;
  });
  LinkHarness harness(server.port(), [](LinkSettings& s) {
    s.replyTimeout = scaled(5s);
    // Longer than the pauses between the requests, so that no PING goes out.
    s.heartbeatInterval = 300ms;
  });
  const SetAtEnd taking(taken);
  ASSERT_TRUE(harness.waitUntilUp());
  const auto twice = makeIntrusive<TestRequest>();
  ASSERT_TRUE(harness.submit(*twice, {"TWICE"}, Mode::awaited));
  ASSERT_EQ(harness.link().await(*twice, Clock::now() + kLong), CommandLink::Awaited::complete);
  EXPECT_EQ(twice->reply().text, "FIRST");
  taken = true;
  ASSERT_EVENTUALLY(kLong, sent.load());
  const Deadline deadline(kLong);
  while (server.accepted() == 1 && !deadline.expired()) {
    const auto next = makeIntrusive<TestRequest>();
    if (harness.submit(*next, {"WORK"}, Mode::awaited)) {
      harness.link().await(*next, Clock::now() + kLong);
    }
    std::this_thread::sleep_for(100ms);
  }
  EXPECT_GT(server.accepted(), 1U);
}

TEST(CommandLinkLife, AHeartbeatThatHasTheAnswerToSomethingElseEndsTheConnection) {
  FakeServer server(kEchoes);
  LinkHarness harness(server.port(), [](LinkSettings& s) {
    s.replyTimeout = scaled(5s);
    s.heartbeatInterval = 20ms;
  });
  ASSERT_TRUE(harness.waitUntilUp());
  server.setPongs(false);
  EXPECT_EVENTUALLY(kLong, harness.downs() > 0);
}

TEST(CommandLinkEnd, WhatIsGivenUpIsNotDeliveredByTheKernel) {
  std::atomic<bool> read{false};
  std::atomic<int> error{0};
  std::atomic<std::size_t> received{0};
  std::atomic<bool> over{false};
  FakeServer server(
      [&](FakeServer::Peer& peer, const FakeServer::Argv& argv) {
        if (argv[0] != "HOLD") {
          return peer.send("+OK\r\n");
        }
        const Deadline deadline(kLong);
        while (!read && !deadline.expired()) {
          std::this_thread::sleep_for(1ms);
        }
        std::vector<char> buffer(65536);
        ssize_t count = 0;
        while ((count = ::recv(peer.fd(), buffer.data(), buffer.size(), 0)) > 0) {
          received += static_cast<std::size_t>(count);
        }
        error = count < 0 ? errno : 0;
        over = true;
        return false;
      },
      4096);
  LinkHarness harness(server.port(), [](LinkSettings& s) { s.replyTimeout = scaled(1s); });
  ASSERT_TRUE(harness.waitUntilUp());
  const std::string large(std::size_t{1} << 20, 'x');
  std::vector<IntrusivePtr<TestRequest>> requests;
  requests.push_back(makeIntrusive<TestRequest>());
  harness.submit(*requests.back(), {"HOLD"}, Mode::background);
  requests.push_back(makeIntrusive<TestRequest>());
  harness.submit(*requests.back(), {"WORK", large}, Mode::background);
  EXPECT_EVENTUALLY(kLong, requests.back()->isCompleted());
  read = true;
  ASSERT_EVENTUALLY(kLong, over.load());
  EXPECT_EQ(error.load(), ECONNRESET);
  EXPECT_LT(received.load(), large.size());
}

TEST(CommandLinkEnd, WhatWasWrittenBeforeAnOrderlyEndArrives) {
  std::atomic<bool> arrived{false};
  FakeServer server([&](FakeServer::Peer& /*peer*/, const FakeServer::Argv& argv) {
    arrived = arrived || argv[0] == "LAST";
    return true;
  });
  LinkHarness harness(server.port());
  ASSERT_TRUE(harness.waitUntilUp());
  const auto last = makeIntrusive<TestRequest>();
  harness.submit(*last, {"LAST"}, Mode::background);
  harness.close();
  EXPECT_EVENTUALLY(kLong, arrived.load());
  EXPECT_EVENTUALLY(kLong, last->isCompleted());
}

}  // namespace
}  // namespace rlock::test
