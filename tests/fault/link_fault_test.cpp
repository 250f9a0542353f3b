// SPDX-License-Identifier: Apache-2.0

// The shared connection when the process itself fails it: no memory, no room in the kernel's
// tables, no time between two steps.

#include "fault/faults.hpp"
#include "integration/link_harness.hpp"
#include "net/codec.hpp"
#include "net/socket.hpp"
#include "support/free_port.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <poll.h>
#include <sys/epoll.h>

namespace rlock::test {
namespace {

using Mode = CommandLink::Mode;
using Clock = std::chrono::steady_clock;
using Delivery = Request::Delivery;
using detail::net::ReplyReader;

/// Answers with the command's own argument.
const FakeServer::Handler kEchoes = [](FakeServer::Peer& peer, const FakeServer::Argv& argv) {
  return peer.send("+" + argv.at(1).substr(0, 32) + "\r\n");
};

TEST(LinkMemory, AReaderIsReplacedInTheMiddleOfAnArray) {
  // hiredis would free the array through what is gone.
  ReplyReader reader;
  detail::Reply reply;
  const std::string_view half = "*2\r\n$1\r\na\r\n";
  reader.feed(half.data(), half.size());
  ASSERT_EQ(reader.next(reply), ReplyReader::Next::needMore);
  reader = ReplyReader();
  reader.feed("+OK\r\n", 5);
  ASSERT_EQ(reader.next(reply), ReplyReader::Next::reply);
  EXPECT_EQ(reply.text, "OK");
}

TEST(LinkMemory, ASubmissionThatFailsIsNeitherSentNorAwaited) {
  FakeServer server(kEchoes);
  LinkHarness harness(server.port(), [](LinkSettings& s) { s.replyTimeout = scaled(5s); });
  ASSERT_TRUE(harness.waitUntilUp());
  int failures = 0;
  for (const Mode mode : {Mode::awaited, Mode::background}) {
    for (long k = 1;; ++k) {
      ASSERT_LT(k, 1000);
      // Long, so that the buffer must grow.
      const std::string large(std::size_t{2} << 20, 'x');
      const auto unlucky = makeIntrusive<TestRequest>();
      const auto next = makeIntrusive<TestRequest>();
      bool thrown = false;
      const bool happened = [&] {
        const std::array<std::string_view, 2> argv{"WORK", large};
        const FailedAllocation failure(k, FailedAllocation::Of::thisThread);
        try {
          harness.link().submit(*unlucky, argv, mode);
        } catch (const std::bad_alloc&) {
          thrown = true;
        }
        return FailedAllocation::happened();
      }();
      ASSERT_TRUE(harness.submit(*next, {"WORK", "next"}, Mode::awaited));
      ASSERT_EQ(harness.link().await(*next, Clock::now() + kLong), CommandLink::Awaited::complete);
      ASSERT_EQ(next->delivery(), Delivery::replied) << k;
      ASSERT_TRUE(next->reply().is("next")) << k << ": " << next->reply().text;
      if (!thrown && mode == Mode::awaited) {
        ASSERT_EQ(harness.link().await(*unlucky, Clock::now() + kLong),
                  CommandLink::Awaited::complete);
      }
      if (!happened) {
        break;
      }
      ++failures;
    }
  }
  EXPECT_GE(failures, 1);
  EXPECT_EQ(server.accepted(), 1U);
}

TEST(LinkMemory, RepliesAndLossesNeedNone) {
  FakeServer server([](FakeServer::Peer& peer, const FakeServer::Argv& argv) {
    return argv[0] == "WORK" && peer.send("+OK\r\n");
  });
  LinkHarness harness(server.port(), [](LinkSettings& s) {
    s.replyTimeout = scaled(1s);
    s.reconnectDelayMax = 100ms;
  });
  for (long k = 1;; ++k) {
    ASSERT_LT(k, 2000);
    ASSERT_TRUE(harness.waitUntilUp()) << k;
    std::vector<IntrusivePtr<TestRequest>> background;
    for (int i = 0; i < 3; ++i) {
      background.push_back(makeIntrusive<TestRequest>());
    }
    const auto answered = makeIntrusive<TestRequest>();
    const auto lost = makeIntrusive<TestRequest>();
    for (const auto& request : background) {
      ASSERT_TRUE(harness.submit(*request, {"WORK"}, Mode::background));
    }
    ASSERT_TRUE(harness.submit(*answered, {"WORK"}, Mode::awaited));
    ASSERT_TRUE(harness.submit(*lost, {"CLOSE"}, Mode::awaited));
    const FailedAllocation failure(k, FailedAllocation::Of::allThreads);
    ASSERT_EQ(harness.link().await(*answered, Clock::now() + kLong),
              CommandLink::Awaited::complete);
    ASSERT_EQ(harness.link().await(*lost, Clock::now() + kLong), CommandLink::Awaited::complete);
    ASSERT_EQ(lost->delivery(), Delivery::lost);
    for (const auto& request : background) {
      ASSERT_EVENTUALLY(kLong, request->isCompleted());
    }
    // And there is a new connection, however far making it came.
    ASSERT_TRUE(harness.waitUntilUp()) << k;
    FailedAllocation::disarm();
    if (!FailedAllocation::happened()) {
      break;
    }
  }
}

/// Nobody else dials, so whatever fails between two attempts, there is a next one.
TEST(LinkMemory, ALinkWhoseServerIsDownGoesOnDialling) {
  const PortReservation nobody;
  LinkHarness harness(nobody.port(), [](LinkSettings& s) {
    s.reconnectDelayMin = 1ms;
    s.reconnectDelayMax = 2ms;
  });
  // It is told of what is thrown out of the timer of the next attempt.
  harness.loop().loop()->setErrorHook([](const char* /*text*/) {});
  for (const int times : {1, 2, 3}) {
    bool happened = true;
    for (long k = 1; happened; ++k) {
      ASSERT_LT(k, 2000);
      const int before = harness.downs();
      const FailedAllocation failure(k, FailedAllocation::Of::otherThreads, times);
      // The first allocation may be one in the midst of an attempt: two whole ones follow.
      ASSERT_EVENTUALLY(kLong, FailedAllocation::happened() || harness.downs() >= before + 3) << k;
      happened = FailedAllocation::happened();
      const int then = harness.downs();
      ASSERT_EVENTUALLY(kLong, harness.downs() >= then + 4) << k << ", " << times << " times";
    }
  }
}

/// A caller that asks for other credentials is answered once, and with `overloaded` where the call
/// itself found no memory.
TEST(LinkMemory, OtherCredentialsAreAnsweredOnce) {
  FakeServer server([](FakeServer::Peer& peer, const FakeServer::Argv& argv) {
    return argv[0] == "AUTH" &&
           peer.send(argv[1] == "wrong" ? "-WRONGPASS invalid username-password pair\r\n"
                                        : "+OK\r\n");
  });
  std::atomic<bool> wrong{false};
  LinkHarness harness(server.port(), [&](LinkSettings& s) {
    s.reconnectDelayMin = 1ms;
    s.reconnectDelayMax = 10ms;
    s.credentials = [&] { return Credentials{{}, wrong ? "wrong" : "right"}; };
  });
  for (long k = 1;; ++k) {
    ASSERT_LT(k, 1000);
    wrong = false;
    ASSERT_TRUE(harness.waitUntilUp()) << k;
    wrong = true;
    std::atomic<int> answers{0};
    std::optional<Errc> refusal;
    bool atOnce = false;
    const FailedAllocation failure(k, FailedAllocation::Of::otherThreads);
    harness.loop().run([&] {
      harness.link().authenticate([&](const Result<void>& result) {
        if (!result.has_value()) {
          refusal = result.error().errc();
        }
        ++answers;
      });
      atOnce = FailedAllocation::happened();
    });
    ASSERT_EVENTUALLY(kLong, answers == 1) << k;
    FailedAllocation::disarm();
    if (atOnce) {
      ASSERT_EQ(refusal, Errc::overloaded) << k;
    }
    if (!FailedAllocation::happened()) {
      ASSERT_EQ(refusal, Errc::authenticationFailed);
      break;
    }
  }
}

#if !defined(__SANITIZE_THREAD__)

/// The loop's library ends the process when an epoll_ctl() of its own fails. It makes them before
/// it waits, and so has none to make when it runs the second of these.
void settle(LinkHarness& harness) {
  harness.loop().run([] {});
  harness.loop().run([] {});
}

TEST(LinkEpoll, ALinkWhoseNewSocketCannotBeWatchedTriesAgain) {
  FakeServer server([](FakeServer::Peer& peer, const FakeServer::Argv& argv) {
    return argv[0] == "WORK" && peer.send("+OK\r\n");
  });
  for (const bool nested : {true, false}) {
    LinkHarness harness(server.port(), [](LinkSettings& s) {
      s.replyTimeout = scaled(2s);
      s.reconnectDelayMax = 100ms;
    });
    ASSERT_TRUE(harness.waitUntilUp());
    settle(harness);
    const auto fatal = makeIntrusive<TestRequest>();
    ASSERT_TRUE(harness.submit(*fatal, {"CLOSE"}, Mode::awaited));
    if (nested) {
      failEpollCtl(EPOLL_CTL_ADD, 1, true);
    }
    ASSERT_EQ(harness.link().await(*fatal, Clock::now() + kLong), CommandLink::Awaited::complete);
    ASSERT_TRUE(harness.waitUntilUp());
    EXPECT_EQ(epollFailuresLeft(), 0);
    if (!nested) {
      settle(harness);
      // The call that makes the loop watch for the reply fails.
      failEpollCtl(EPOLL_CTL_MOD, 1, false);
    }
    const auto works = makeIntrusive<TestRequest>();
    ASSERT_TRUE(harness.submit(*works, {"WORK"}, Mode::background));
    EXPECT_EVENTUALLY(1s, works->isCompleted());
    EXPECT_EQ(works->delivery(), Delivery::replied);
    EXPECT_EQ(epollFailuresLeft(), 0);
    failEpollCtl(0, 0, false);
  }
}

TEST(LinkRace, AWaiterThatComesBetweenALossAndItsAnnouncementDoesNotRead) {
  std::atomic<bool> reset{false};
  FakeServer server([&](FakeServer::Peer& peer, const FakeServer::Argv& argv) {
    if (argv[0] != "CLOSE") {
      return true;
    }
    peer.resetOnClose();
    reset = true;
    return false;
  });
  std::atomic<bool> leave{false};
  std::atomic<bool> inside{false};
  std::atomic<int> clientFd{-1};
  LinkHarness harness(server.port(), [&](LinkSettings& s) {
    s.replyTimeout = scaled(5s);
    s.wrap = [&](int fd, const Endpoint&) {
      clientFd = fd;
      return detail::net::makePlainStream(detail::net::UniqueFd(fd));
    };
  });
  ASSERT_TRUE(harness.waitUntilUp());
  std::jthread writer;
  const SetAtEnd leaving(leave);
  // The loop is kept from noticing anything, and from tearing the connection down too early.
  harness.loop().loop()->post([&] {
    inside = true;
    const Deadline deadline(kLong);
    while (!leave && !deadline.expired()) {
      std::this_thread::sleep_for(1ms);
    }
  });
  ASSERT_EVENTUALLY(kLong, inside.load());
  const auto early = makeIntrusive<TestRequest>();
  const auto fatal = makeIntrusive<TestRequest>();
  ASSERT_TRUE(harness.submit(*early, {"WORK"}, Mode::awaited));
  ASSERT_TRUE(harness.submit(*fatal, {"CLOSE"}, Mode::background));
  ASSERT_EVENTUALLY(kLong, reset.load());
  // It says so before it closes.
  const auto isReset = [&] {
    pollfd watched{clientFd.load(), 0, 0};
    return ::poll(&watched, 1, 0) > 0 && (watched.revents & (POLLERR | POLLHUP)) != 0;
  };
  ASSERT_EVENTUALLY(kLong, isReset());
  // A writer finds the connection reset. It is preempted each time it gives a mutex back, so also
  // between ending the requests and saying so.
  const auto late = makeIntrusive<TestRequest>();
  writer = std::jthread([&, late] {
    pauseAfterUnlocking(100ms);
    harness.submit(*late, {"WORK"}, Mode::awaited);
    pauseAfterUnlocking(0us);
    EXPECT_EQ(harness.link().await(*late, Clock::now() + kLong), CommandLink::Awaited::complete);
  });
  ASSERT_EVENTUALLY(kLong, !harness.link().up());
  std::optional<CommandLink::Awaited> result;
  std::jthread waiter([&] { result = harness.link().await(*early, Clock::now() + kLong); });
  leave = true;
  waiter.join();
  writer.join();
  EXPECT_EQ(result, CommandLink::Awaited::complete);
  EXPECT_NE(early->delivery(), Delivery::pending);
}

#endif

}  // namespace
}  // namespace rlock::test
