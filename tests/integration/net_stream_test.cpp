// SPDX-License-Identifier: Apache-2.0

// The connections over a stream that has bytes of its own, as TLS has: what it has taken from the
// socket is not read yet, and what it has taken from its writer is not sent yet.

#include "integration/link_harness.hpp"
#include "net/pubsub_link.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace rlock::test {
namespace {

using detail::net::Stream;
using detail::net::UniqueFd;
using Mode = CommandLink::Mode;
using Clock = std::chrono::steady_clock;

/// Takes all that the socket has and hands out a record of it at a time; makes a record of what it
/// is to write, and sends that in two halves.
class RecordStream final : public Stream {
 public:
  static constexpr std::size_t kRecord = 100;

  explicit RecordStream(int fd) : fd_(fd) {}
  ~RecordStream() override { shutdown(); }

  ssize_t read(char* data, std::size_t size, bool mayBlock) noexcept override {
    if (input_.empty()) {
      std::array<char, 16384> buffer;
      const ssize_t count =
          ::recv(fd_.get(), buffer.data(), buffer.size(), mayBlock ? 0 : MSG_DONTWAIT);
      if (count <= 0) {
        return count;
      }
      input_.assign(buffer.data(), static_cast<std::size_t>(count));
    }
    const std::size_t count = std::min({size, kRecord, input_.size()});
    std::memcpy(data, input_.data(), count);
    input_.erase(0, count);
    return static_cast<ssize_t>(count);
  }
  ssize_t write(const char* data, std::size_t size) noexcept override {
    if (output_.empty()) {
      output_.assign(data, std::min(size, kRecord));
      sent_ = 0;
      sent_ = send(output_.size() / 2);
      errno = EAGAIN;
      return -1;
    }
    EXPECT_GE(size, output_.size());
    EXPECT_EQ(std::string_view(data, output_.size()), output_) << "other bytes after EAGAIN";
    sent_ += send(output_.size() - sent_);
    if (sent_ < output_.size()) {
      errno = EAGAIN;
      return -1;
    }
    const auto count = static_cast<ssize_t>(output_.size());
    output_.clear();
    return count;
  }
  void shutdown() noexcept override { ::shutdown(fd_.get(), SHUT_RDWR); }
  [[nodiscard]] int descriptor() const noexcept override { return fd_.get(); }
  [[nodiscard]] bool hasBufferedInput() const noexcept override { return !input_.empty(); }

 private:
  std::size_t send(std::size_t size) const noexcept {
    const ssize_t count =
        ::send(fd_.get(), output_.data() + sent_, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    return count > 0 ? static_cast<std::size_t>(count) : 0;
  }

  UniqueFd fd_;
  std::string input_;
  std::string output_;
  std::size_t sent_ = 0;
};

void useRecords(LinkSettings& settings) {
  settings.replyTimeout = scaled(2s);
  settings.wrap = [](int fd, const Endpoint&) { return std::make_unique<RecordStream>(fd); };
}

const FakeServer::Handler kEchoes = [](FakeServer::Peer& peer, const FakeServer::Argv& argv) {
  return peer.send("+" + argv.at(1) + "\r\n");
};

TEST(RecordStreams, RepliesThatNoThreadAwaitsAreNotLeftInTheStream) {
  FakeServer server(kEchoes);
  LinkHarness harness(server.port(), useRecords);
  ASSERT_TRUE(harness.waitUntilUp());
  // Each reply is nearly a record, so that most records end within one.
  const std::string text(RecordStream::kRecord - 10, 'e');
  std::vector<IntrusivePtr<TestRequest>> requests;
  harness.loop().run([&] {
    for (int i = 0; i < 5; ++i) {
      requests.push_back(makeIntrusive<TestRequest>());
      harness.submit(*requests.back(), {"ECHO", text}, Mode::background);
    }
  });
  for (const auto& request : requests) {
    ASSERT_EVENTUALLY(1s, request->isCompleted());
    EXPECT_TRUE(request->reply().is(text));
  }
  EXPECT_EQ(server.accepted(), 1U);
}

TEST(RecordStreams, WhatAReaderLeavesInTheStreamIsReadByTheLoop) {
  // All replies come at once, when the reader's own request is there, too.
  std::string replies;
  FakeServer server([&](FakeServer::Peer& peer, const FakeServer::Argv& argv) {
    replies += "+" + argv.at(1) + "\r\n";
    return argv.at(1) != "last" || peer.send(std::exchange(replies, ""));
  });
  LinkHarness harness(server.port(), useRecords);
  ASSERT_TRUE(harness.waitUntilUp());
  const std::string text(RecordStream::kRecord - 10, 'e');
  for (int round = 0; round < 20; ++round) {
    const auto first = makeIntrusive<TestRequest>();
    ASSERT_TRUE(harness.submit(*first, {"ECHO", text}, Mode::awaited));
    std::vector<IntrusivePtr<TestRequest>> rest;
    for (int i = 0; i < 3; ++i) {
      rest.push_back(makeIntrusive<TestRequest>());
      ASSERT_TRUE(harness.submit(*rest.back(), {"ECHO", i < 2 ? text : "last"}, Mode::background));
    }
    ASSERT_EQ(harness.link().await(*first, Clock::now() + kLong), CommandLink::Awaited::complete);
    EXPECT_TRUE(first->reply().is(text));
    for (const auto& request : rest) {
      ASSERT_EVENTUALLY(1s, request->isCompleted()) << "round " << round;
      EXPECT_EQ(request->delivery(), Request::Delivery::replied);
    }
  }
  EXPECT_EQ(server.accepted(), 1U);
}

TEST(RecordStreams, ManyThreadsShareOne) {
  FakeServer server(kEchoes);
  LinkHarness harness(server.port(), useRecords);
  ASSERT_TRUE(harness.waitUntilUp());
  std::vector<std::future<int>> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.push_back(std::async(std::launch::async, [&harness, thread] {
      int right = 0;
      for (int i = 0; i < 100; ++i) {
        const std::string text(static_cast<std::size_t>(1 + (i * 7 + thread * 31) % 300), 'x');
        const auto request = makeIntrusive<TestRequest>();
        if (harness.submit(*request, {"ECHO", text}, Mode::awaited) &&
            harness.link().await(*request, Clock::now() + kLong) ==
                CommandLink::Awaited::complete &&
            request->reply().is(text)) {
          ++right;
        }
      }
      return right;
    }));
  }
  for (auto& thread : threads) {
    EXPECT_EQ(thread.get(), 100);
  }
  EXPECT_EQ(server.accepted(), 1U);
}

/// Passes bytes on, and writes nothing between cut() and the next bytes that come.
class CutStream final : public Stream {
 public:
  struct Cut {
    std::atomic<bool> now{false};
    std::atomic<int> writes{0};  ///< meanwhile
  };

  CutStream(int fd, Cut& cut) : fd_(fd), cut_(cut) {}
  ~CutStream() override { shutdown(); }

  ssize_t read(char* data, std::size_t size, bool mayBlock) noexcept override {
    const ssize_t count = ::recv(fd_.get(), data, size, mayBlock ? 0 : MSG_DONTWAIT);
    if (count > 0) {
      cut_.now = false;
    }
    return count;
  }
  ssize_t write(const char* data, std::size_t size) noexcept override {
    if (cut_.now) {
      ++cut_.writes;
      errno = EAGAIN;
      return -1;
    }
    return ::send(fd_.get(), data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  void shutdown() noexcept override { ::shutdown(fd_.get(), SHUT_RDWR); }
  [[nodiscard]] int descriptor() const noexcept override { return fd_.get(); }
  [[nodiscard]] bool writeAwaitsInput() const noexcept override { return cut_.now; }

 private:
  UniqueFd fd_;
  Cut& cut_;
};

/// As amid a session ticket in several records, of which the server is late with the rest.
class WriteAwaitsInput : public testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<LinkHarness> connected() {
    auto harness = std::make_unique<LinkHarness>(server_.port(), [this](LinkSettings& settings) {
      settings.replyTimeout = scaled(10s);
      settings.wrap = [this](int fd, const Endpoint&) {
        return std::make_unique<CutStream>(fd, cut_);
      };
    });
    EXPECT_TRUE(harness->waitUntilUp());
    return harness;
  }

  CutStream::Cut cut_;
  FakeServer server_{[this](FakeServer::Peer& peer, const FakeServer::Argv& argv) {
    if (argv.at(1) == "late") {
      EXPECT_EVENTUALLY(kLong, cut_.writes > 0);
      std::this_thread::sleep_for(100ms);
      // Spinning writes thousands of times.
      EXPECT_LE(cut_.writes, 5);
    }
    return kEchoes(peer, argv);
  }};
};

TEST_F(WriteAwaitsInput, TheLoopDoesNotSpin) {
  const auto harness = connected();
  const auto first = makeIntrusive<TestRequest>();
  ASSERT_TRUE(harness->submit(*first, {"ECHO", "late"}, Mode::background));
  cut_.now = true;
  const auto second = makeIntrusive<TestRequest>();
  ASSERT_TRUE(harness->submit(*second, {"ECHO", "next"}, Mode::background));
  EXPECT_EVENTUALLY(kLong, second->isCompleted());
  EXPECT_TRUE(second->reply().is("next"));
}

TEST_F(WriteAwaitsInput, AThreadThatReadsDoesNotSpin) {
  const auto harness = connected();
  const auto first = makeIntrusive<TestRequest>();
  ASSERT_TRUE(harness->submit(*first, {"ECHO", "late"}, Mode::awaited));
  cut_.now = true;
  const auto second = makeIntrusive<TestRequest>();
  ASSERT_TRUE(harness->submit(*second, {"ECHO", "next"}, Mode::awaited));
  auto reader = std::async(std::launch::async,
                           [&] { return harness->link().await(*first, Clock::now() + kLong); });
  EXPECT_EQ(reader.get(), CommandLink::Awaited::complete);
  EXPECT_EQ(harness->link().await(*second, Clock::now() + kLong), CommandLink::Awaited::complete);
  EXPECT_TRUE(second->reply().is("next"));
}

/// Passes bytes on until the server is said to have closed, with an alert that is still to be read.
class RefusedStream final : public Stream {
 public:
  RefusedStream(int fd, std::atomic<bool>& refused) : fd_(fd), refused_(refused) {}
  ~RefusedStream() override { shutdown(); }

  ssize_t read(char* data, std::size_t size, bool mayBlock) noexcept override {
    if (refused_) {
      heard_ = true;
      errno = EPROTO;
      return -1;
    }
    return ::recv(fd_.get(), data, size, mayBlock ? 0 : MSG_DONTWAIT);
  }
  ssize_t write(const char* data, std::size_t size) noexcept override {
    if (refused_) {
      // As in the kernel: who reads finds the end.
      shutdown();
      errno = EPIPE;
      return -1;
    }
    return ::send(fd_.get(), data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  void shutdown() noexcept override { ::shutdown(fd_.get(), SHUT_RDWR); }
  [[nodiscard]] int descriptor() const noexcept override { return fd_.get(); }
  [[nodiscard]] const detail::net::StreamFailure* failure() const noexcept override {
    return heard_ ? &failure_ : nullptr;
  }

 private:
  UniqueFd fd_;
  std::atomic<bool>& refused_;
  std::atomic<bool> heard_{false};
  const detail::net::StreamFailure failure_{Errc::authenticationFailed, "certificate revoked"};
};

class WriteMeetsAnAlert : public testing::TestWithParam<Mode> {};

TEST_P(WriteMeetsAnAlert, AndTheReasonIsTold) {
  FakeServer server(kEchoes);
  std::atomic<bool> refused{false};
  LinkHarness harness(server.port(), [&](LinkSettings& settings) {
    settings.replyTimeout = scaled(10s);
    settings.wrap = [&](int fd, const Endpoint&) {
      return std::make_unique<RefusedStream>(fd, refused);
    };
  });
  ASSERT_TRUE(harness.waitUntilUp());
  refused = true;
  const auto request = makeIntrusive<TestRequest>();
  ASSERT_TRUE(harness.submit(*request, {"ECHO", "text"}, GetParam()));
  if (GetParam() == Mode::background) {
    EXPECT_EVENTUALLY(kLong, request->isCompleted());
  } else {
    EXPECT_EQ(harness.link().await(*request, Clock::now() + kLong), CommandLink::Awaited::complete);
  }
  // Lost, if the loop comes upon the end before the writer has returned from its call.
  EXPECT_NE(request->delivery(), Request::Delivery::replied);
  EXPECT_EVENTUALLY(kLong, harness.downs() == 1);
  EXPECT_NE(harness.whyDown().find("certificate revoked"), std::string::npos) << harness.whyDown();
}

INSTANTIATE_TEST_SUITE_P(Modes,
                         WriteMeetsAnAlert,
                         testing::Values(Mode::background, Mode::awaited, Mode::awaitedAtOnce));

class Heard final : public detail::net::PubSubEvents {
 public:
  void onSubscribed(const std::string& channel) override { subscribed.insert(channel); }
  void onRefused(const std::string&, const Error& error) override { ADD_FAILURE() << error.what(); }
  void onMessage(const std::string&, std::string_view) override { ++messages; }
  void onUp() override {}
  void onDown(const Error& error) override {
    if (++downs == 1) {
      whyDown = error.what();
    }
  }

  std::set<std::string> subscribed;
  std::string whyDown;  ///< the first time
  int messages = 0;
  int downs = 0;
};

TEST(RecordStreams, Subscriptions) {
  constexpr int kMessages = 300;
  FakeServer server([](FakeServer::Peer& peer, const FakeServer::Argv& argv) {
    std::string answer;
    const auto bulk = [](const std::string& text) {
      return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
    };
    for (std::size_t i = 1; i < argv.size(); ++i) {
      answer += "*3\r\n" + bulk("subscribe") + bulk(argv[i]) + ":1\r\n";
      for (int n = 0; n < kMessages && argv[i] == "last"; ++n) {
        answer += "*3\r\n" + bulk("message") + bulk(argv[i]) + bulk("m");
      }
    }
    return peer.send(answer);
  });
  LoopHarness loop;
  Heard heard;
  LinkSettings settings = settingsFor({tcp(server.port())});
  useRecords(settings);
  auto link = loop.run([&] {
    auto made = std::make_unique<detail::net::PubSubLink>(loop.loop(), settings, heard);
    for (int i = 0; i < 50; ++i) {
      made->subscribe("channel" + std::to_string(i));
    }
    made->subscribe("last");
    return made;
  });
  EXPECT_EVENTUALLY(kLong, loop.run([&] {
    return heard.subscribed.size() == 51 && heard.messages == kMessages;
  }));
  EXPECT_EQ(loop.run([&] { return heard.downs; }), 0);
  loop.run([&] { link.reset(); });
}

TEST(RefusedStreams, ASubscriptionTellsTheReason) {
  FakeServer server([](FakeServer::Peer& peer, const FakeServer::Argv&) {
    return peer.send("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n");
  });
  LoopHarness loop;
  Heard heard;
  std::atomic<bool> refused{false};
  LinkSettings settings = settingsFor({tcp(server.port())});
  settings.wrap = [&](int fd, const Endpoint&) {
    return std::make_unique<RefusedStream>(fd, refused);
  };
  auto link = loop.run([&] {
    auto made = std::make_unique<detail::net::PubSubLink>(loop.loop(), settings, heard);
    made->subscribe("a");
    return made;
  });
  ASSERT_EVENTUALLY(kLong, loop.run([&] { return heard.subscribed.size() == 1; }));
  loop.run([&] {
    refused = true;
    link->subscribe("b");
  });
  EXPECT_EVENTUALLY(kLong, loop.run([&] { return heard.downs >= 1; }));
  EXPECT_NE(loop.run([&] { return heard.whyDown; }).find("certificate revoked"), std::string::npos);
  loop.run([&] { link.reset(); });
}

/// Waits for the peer before there is anything to write.
class WaitingStream final : public Stream {
 public:
  WaitingStream(int fd, std::atomic<int>& opens) : fd_(fd), opens_(opens) {}

  Opening open() override {
    ++opens_;
    char first = 0;
    return ::recv(fd_.get(), &first, 1, MSG_DONTWAIT) == 1 ? Opening::done : Opening::needsInput;
  }
  ssize_t read(char* data, std::size_t size, bool) noexcept override {
    return ::recv(fd_.get(), data, size, MSG_DONTWAIT);
  }
  ssize_t write(const char* data, std::size_t size) noexcept override {
    return ::send(fd_.get(), data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  void shutdown() noexcept override { ::shutdown(fd_.get(), SHUT_RDWR); }
  [[nodiscard]] int descriptor() const noexcept override { return fd_.get(); }

 private:
  UniqueFd fd_;
  std::atomic<int>& opens_;
};

TEST(StreamOpening, WaitsForThePeerWithoutSpinning) {
  ScriptedServer silent({});
  LoopHarness loop;
  std::atomic<int> opens{0};
  LinkSettings settings = settingsFor({tcp(silent.port())});
  settings.connectTimeout = scaled(1s);
  settings.wrap = [&](int fd, const Endpoint&) {
    return std::make_unique<WaitingStream>(fd, opens);
  };
  const ConnectOutcome outcome = connectOnce(loop, settings);
  ASSERT_FALSE(outcome.connected());
  EXPECT_NE(outcome.error().message().find("TLS handshake"), std::string::npos)
      << outcome.error().what();
  EXPECT_GE(opens, 1);
  EXPECT_LE(opens, 3);
}

TEST(StreamOpening, TheHandshakeFollows) {
  ScriptedServer server({{"", "!"}, {"PING", handshakeAnswer()}});
  LoopHarness loop;
  std::atomic<int> opens{0};
  LinkSettings settings = settingsFor({tcp(server.port())});
  settings.wrap = [&](int fd, const Endpoint&) {
    return std::make_unique<WaitingStream>(fd, opens);
  };
  const ConnectOutcome outcome = connectOnce(loop, settings, false);
  EXPECT_TRUE(outcome.connected()) << (outcome.connected() ? "" : outcome.error().what());
  EXPECT_LE(opens, 4);
}

}  // namespace
}  // namespace rlock::test
