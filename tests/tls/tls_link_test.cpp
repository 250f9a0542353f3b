// SPDX-License-Identifier: Apache-2.0

// The shared connection over TLS, with commands and replies that fill it.

#include "integration/link_harness.hpp"
#include "net/tls.hpp"
#include "support/redis_server.hpp"
#include "tls/tls_front.hpp"

#include <gtest/gtest.h>

#include <array>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rlock::test {
namespace {

/// A command link of its own, for commands that are large.
class TlsLink : public ::testing::Test {
 protected:
  void SetUp() override {
    RLOCK_REQUIRE_REDIS_SERVER();
    server_ = std::make_unique<RedisServer>();
  }

  /// A link to a front before redis-server.
  void open(TlsFrontOptions options = {}) {
    options.certificate = ca_.issue();
    front_ = std::make_unique<TlsFront>(server_->port(), std::move(options));
    Options trusting;
    trusting.tlsCaFile = ca_.file();
    link_ = std::make_unique<LinkHarness>(front_->port(), [&](LinkSettings& settings) {
      // How fast it goes is not the subject.
      settings.replyTimeout = scaled(60s);
      settings.wrap = ::rlock::detail::net::tlsStreams(trusting, nullptr);
    });
    ASSERT_TRUE(link_->waitUntilUp());
  }

  static std::string textOf(std::size_t size, int seed) {
    std::string text(size, ' ');
    for (std::size_t i = 0; i < size; ++i) {
      text[i] = static_cast<char>('a' + (i * 31 + static_cast<std::size_t>(seed)) % 26);
    }
    return text;
  }

  /// Each thread sends some without waiting for them, and waits for one itself.
  void echoLarge(int threads, int rounds, std::size_t largest) {
    std::vector<std::future<std::string>> running;
    for (int thread = 0; thread < threads; ++thread) {
      running.push_back(
          std::async(std::launch::async, [this, thread, rounds, largest]() -> std::string {
            for (int round = 0; round < rounds; ++round) {
              std::vector<std::pair<IntrusivePtr<TestRequest>, std::string>> sent;
              for (int i = 0; i < 4; ++i) {
                const int seed = thread * 1000 + round * 10 + i;
                const std::size_t size = 1 + static_cast<std::size_t>(seed) * 7919 % largest;
                sent.emplace_back(makeIntrusive<TestRequest>(), textOf(size, seed));
                const std::array<std::string_view, 2> argv{"ECHO", sent.back().second};
                if (!link_->link().submit(
                        *sent.back().first,
                        argv,
                        i == 1 ? CommandLink::Mode::awaited : CommandLink::Mode::background)) {
                  return "not sent";
                }
              }
              if (link_->link().await(*sent[1].first,
                                      std::chrono::steady_clock::now() + scaled(kLong)) !=
                  CommandLink::Awaited::complete) {
                return "no answer";
              }
              const Deadline deadline(kLong);
              for (const auto& [request, text] : sent) {
                while (request != sent[1].first && !request->isCompleted()) {
                  if (deadline.expired()) {
                    return "a reply is missing";
                  }
                  std::this_thread::sleep_for(1ms);
                }
                if (request->delivery() != Request::Delivery::replied ||
                    request->reply().text != text) {
                  return "a wrong reply";
                }
              }
            }
            return "ok";
          }));
    }
    for (auto& one : running) {
      EXPECT_EQ(one.get(), "ok");
    }
    EXPECT_EQ(link_->downs(), 0);
    EXPECT_EQ(front_->accepted(), 1);
  }

  TestCa ca_;
  std::unique_ptr<RedisServer> server_;
  std::unique_ptr<TlsFront> front_;
  std::unique_ptr<LinkHarness> link_;
};

TEST_F(TlsLink, ManyThreadsPipelineLargeReplies) {
  open();
  echoLarge(8, 12, 300'000);
}

TEST_F(TlsLink, AFullSocketLosesNothing) {
  open({.receiveBuffer = 4096});
  server_->freeze();
  // More than all buffers on the way hold.
  std::vector<std::pair<IntrusivePtr<TestRequest>, std::string>> sent;
  for (int i = 0; i < 60; ++i) {
    sent.emplace_back(makeIntrusive<TestRequest>(), textOf(300'000, i));
    const std::array<std::string_view, 2> argv{"ECHO", sent.back().second};
    ASSERT_TRUE(link_->link().submit(*sent.back().first, argv, CommandLink::Mode::background));
  }
  server_->thaw();
  for (const auto& [request, text] : sent) {
    ASSERT_EVENTUALLY(kLong, request->isCompleted());
    EXPECT_EQ(request->delivery(), Request::Delivery::replied);
    EXPECT_EQ(request->reply().text, text);
  }
  EXPECT_EQ(link_->downs(), 0);
}

TEST_F(TlsLink, SmallRecordsAndLargeReplies) {
  open({.recordSize = 37});
  echoLarge(4, 6, 60'000);
}

TEST_F(TlsLink, LargeRepliesInTheOlderVersion) {
  open({.highestVersion = TLS1_2_VERSION});
  echoLarge(4, 6, 200'000);
}

}  // namespace
}  // namespace rlock::test
