// SPDX-License-Identifier: Apache-2.0

// Names, where the system's resolver hangs.

#include "integration/net_harness.hpp"
#include "net/connector.hpp"
#include "net/resolver.hpp"
#include "support/hanging_names.hpp"
#include "support/redis_server.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace rlock::detail::net {
namespace {

using namespace std::chrono_literals;
using test::connectOnce;
using test::ConnectOutcome;
using test::eventually;
using test::HangingNames;
using test::kLong;
using test::LoopHarness;
using test::RedisServer;
using test::scaled;
using test::settingsFor;
using test::tcp;

constexpr const char* kHangs = "redis.hangs.test";

/// The signals that each thread of a lookup blocks: a bit for each, from the lowest on.
std::vector<std::uint64_t> signalsBlockedInLookups() {
  std::vector<std::uint64_t> result;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(thread.path() / "status");
    bool isLookup = false;
    for (std::string line; std::getline(status, line);) {
      isLookup = isLookup || line == "Name:\trlock-resolve";
      if (constexpr std::string_view kBlocked = "SigBlk:"; isLookup && line.starts_with(kBlocked)) {
        result.push_back(std::stoull(line.substr(kBlocked.size()), nullptr, 16));
      }
    }
  }
  return result;
}

/// Of this process. A thread counts as soon as the call that starts it has returned.
std::size_t threads() {
  const std::filesystem::directory_iterator all("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

class ResolverTest : public testing::Test {
 protected:
  ~ResolverTest() override {
    names_.release();
    EXPECT_TRUE(eventually(kLong, [] { return HangingNames::running() == 0; }));
  }

  HangingNames names_;
  LoopHarness harness_;
};

TEST_F(ResolverTest, AHungResolverIsATimeout) {
  LinkSettings settings = settingsFor({tcp(6379, kHangs)});
  settings.connectTimeout = 100ms;
  const ConnectOutcome outcome = connectOnce(harness_, settings);
  ASSERT_TRUE(outcome.result);
  EXPECT_EQ(outcome.error().errc(), Errc::connectionFailed);
  EXPECT_NE(std::string(outcome.error().what()).find("name resolution timed out"),
            std::string::npos)
      << outcome.error().what();
  EXPECT_GE(outcome.elapsed, 100ms);
  EXPECT_LE(outcome.elapsed, 100ms + scaled(50ms));
}

TEST_F(ResolverTest, AHungNameDoesNotKeepTheOtherEndpointsWaiting) {
  RLOCK_REQUIRE_REDIS_SERVER();
  const RedisServer server;
  LinkSettings settings = settingsFor({tcp(server.port(), kHangs), tcp(server.port())});
  settings.connectTimeout = scaled(20s);
  const ConnectOutcome outcome = connectOnce(harness_, settings);
  EXPECT_TRUE(outcome.connected());
  EXPECT_LE(outcome.elapsed, scaled(2s));
}

TEST_F(ResolverTest, AHungNameDoesNotKeepOtherNamesWaiting) {
  std::atomic<bool> answered{false};
  std::vector<std::unique_ptr<NameLookup>> lookups;
  harness_.run([&] {
    for (int i = 0; i < 8; ++i) {
      lookups.push_back(std::make_unique<NameLookup>(
          *harness_.loop(), std::to_string(i) + ".hangs.test", [](const NameAnswer&) {}));
    }
    lookups.push_back(std::make_unique<NameLookup>(
        *harness_.loop(), "localhost", [&](const NameAnswer&) { answered = true; }));
  });
  EXPECT_TRUE(eventually(kLong, [&] { return answered.load(); }));
  EXPECT_TRUE(eventually(kLong, [] { return HangingNames::running() == 8; }));
  harness_.run([&] { lookups.clear(); });
}

TEST_F(ResolverTest, ThoseWhoAskForTheSameNameShareOneLookup) {
  std::atomic<int> answers{0};
  std::vector<std::unique_ptr<NameLookup>> lookups;
  LoopHarness other;
  const auto ask = [&](LoopHarness& harness) {
    return harness.run([&] {
      return std::make_unique<NameLookup>(*harness.loop(), kHangs, [&](const NameAnswer& answer) {
        EXPECT_EQ(answer.error, "");
        EXPECT_NE(answer.addresses, nullptr);
        ++answers;
      });
    });
  };
  for (int i = 0; i < 10; ++i) {
    lookups.push_back(ask(harness_));
  }
  std::unique_ptr<NameLookup> elsewhere = ask(other);
  ASSERT_TRUE(eventually(kLong, [] { return HangingNames::begun() == 1; }));
  harness_.run([&] { lookups.resize(7); });
  names_.release();
  EXPECT_TRUE(eventually(kLong, [&] { return answers == 8; }));
  EXPECT_EQ(HangingNames::begun(), 1);
  harness_.run([&] { lookups.clear(); });
  other.run([&] { elsewhere.reset(); });
  EXPECT_EQ(answers, 8) << "who has given up is not told";
}

TEST_F(ResolverTest, ALookupThatTakesVeryLongGetsAFewBesideIt) {
  std::atomic<int> answers{0};
  std::vector<std::unique_ptr<NameLookup>> lookups;
  const auto ask = [&](std::chrono::milliseconds patience) {
    harness_.run([&] {
      lookups.push_back(std::make_unique<NameLookup>(
          *harness_.loop(), kHangs, [&](const NameAnswer& /*answer*/) { ++answers; }, patience));
    });
  };
  ask(1h);
  ASSERT_TRUE(eventually(kLong, [] { return HangingNames::begun() == 1; }));
  for (int all = 2; all <= 4; ++all) {
    const std::size_t before = threads();
    ask(1h);
    EXPECT_LE(threads(), before) << "it has not taken long";
    ask(0ms);
    ASSERT_TRUE(eventually(kLong, [&] { return HangingNames::begun() == all; }));
  }
  const std::size_t before = threads();
  ask(0ms);
  EXPECT_LE(threads(), before) << "they would pile up";
  names_.release();
  EXPECT_TRUE(eventually(kLong, [&] { return answers == 8; })) << "each answer is for all";
  EXPECT_EQ(HangingNames::begun(), 4);
  harness_.run([&] { lookups.clear(); });
}

TEST_F(ResolverTest, SignalsAreLeftToTheThreadsOfTheApplication) {
  std::unique_ptr<NameLookup> lookup;
  harness_.run([&] {
    // As on a loop that the application runs, whose thread takes its signals.
    sigset_t none;
    sigset_t before;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, &before);
    lookup =
        std::make_unique<NameLookup>(*harness_.loop(), kHangs, [](const NameAnswer& /*answer*/) {});
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  });
  ASSERT_TRUE(eventually(kLong, [] { return HangingNames::running() == 1; }));
  const std::vector<std::uint64_t> blocked = signalsBlockedInLookups();
  EXPECT_FALSE(blocked.empty());
  for (const std::uint64_t mask : blocked) {
    const auto blocks = [mask](int signal) { return ((mask >> (signal - 1)) & 1U) != 0; };
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE, SIGCHLD, SIGALRM}) {
      EXPECT_TRUE(blocks(signal)) << signal;
    }
    EXPECT_FALSE(blocks(SIGSEGV));
  }
  harness_.run([&] { lookup.reset(); });
}

TEST_F(ResolverTest, AReconnectingClientDoesNotPileUpThreads) {
  LinkSettings settings = settingsFor({tcp(6379, kHangs)});
  settings.connectTimeout = 5ms;
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(connectOnce(harness_, settings).connected());
  }
  EXPECT_TRUE(eventually(kLong, [] { return HangingNames::begun() >= 1; }));
  EXPECT_EQ(HangingNames::begun(), 1);
}

TEST_F(ResolverTest, TheLoopMayEndBeforeTheAnswer) {
  std::unique_ptr<NameLookup> lookup;
  {
    LoopHarness gone;
    lookup = gone.run([&] {
      return std::make_unique<NameLookup>(
          *gone.loop(), kHangs, [](const NameAnswer&) { ADD_FAILURE(); });
    });
  }
  names_.release();
  EXPECT_TRUE(eventually(kLong, [] { return HangingNames::running() == 0; }));
}

TEST_F(ResolverTest, AHandlerMayAskAgain) {
  names_.release();
  std::promise<void> done;
  std::unique_ptr<NameLookup> lookup;
  int left = 5;
  std::function<void()> next = [&] {
    lookup = std::make_unique<NameLookup>(*harness_.loop(), kHangs, [&](const NameAnswer&) {
      if (--left > 0) {
        next();
      } else {
        lookup.reset();
        done.set_value();
      }
    });
  };
  harness_.run(next);
  EXPECT_EQ(done.get_future().wait_for(scaled(kLong)), std::future_status::ready);
}

// The child has neither the thread nor the lookups of its parent.
TEST_F(ResolverTest, AChildResolvesForItself) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a forked child cannot start threads under this sanitizer";
#endif
  std::unique_ptr<NameLookup> lookup = harness_.run([&] {
    return std::make_unique<NameLookup>(*harness_.loop(), kHangs, [](const NameAnswer&) {});
  });
  ASSERT_TRUE(eventually(kLong, [] { return HangingNames::running() == 1; }));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    names_.release();
    lookup.reset();
    const auto loop = Loop::createOwned("child");
    std::promise<bool> resolved;
    std::unique_ptr<NameLookup> own;
    loop->post([&] {
      own = std::make_unique<NameLookup>(*loop, kHangs, [&](const NameAnswer& answer) {
        resolved.set_value(answer.addresses != nullptr);
      });
    });
    ::_exit(resolved.get_future().get() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(HangingNames::running(), 1);
  harness_.run([&] { lookup.reset(); });
}

}  // namespace
}  // namespace rlock::detail::net
