// SPDX-License-Identifier: Apache-2.0

// Threads and a loop on one connection over a real socket, in the build whose threads give way to
// each other at every mutex and atomic. The server repeats what it is told, in pieces and in
// bursts; callers leave early, are interrupted and come back, and the connection breaks under them.
// Each request has a number of its own: an answer that reaches another request, or none, or two, is
// seen at once.
//
// RLOCK_RACE_ROUNDS and RLOCK_RACE_SEED as in races_test.cpp.

#include "integration/link_harness.hpp"
#include "net/loop_env.hpp"
#include "races/rounds.hpp"
#include "races/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

namespace rlock::races {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using detail::IntrusivePtr;
using detail::makeIntrusive;
using detail::Reply;
using detail::net::CommandLink;
using detail::net::LinkSettings;
using detail::net::LoneRequest;
using test::FakeServer;
using test::LinkHarness;
using Mode = CommandLink::Mode;
using Awaited = CommandLink::Awaited;
using Delivery = LoneRequest::Delivery;

/// Longer than any answer takes on a loaded machine.
constexpr auto kNever = 30s;

/// The requests that the server has executed, and their outcomes.
struct Record {
  /// More than the rounds of any test send, by default or as many as were asked for.
  static std::size_t most() { return (1U << 21U) + 160 * fromEnvironment("RLOCK_RACE_ROUNDS", 0); }

  std::vector<std::atomic<bool>> executed = std::vector<std::atomic<bool>>(most());
  std::atomic<std::uint64_t> numbers{0};
  std::atomic<std::uint64_t> endedInBackground{0};
  std::mutex mutex;
  std::vector<std::uint64_t> unsent;
};

/// A request with a number, a new one each time that it is sent.
class Probe final : public LoneRequest {
 public:
  explicit Probe(Record& record) noexcept : record_(record) {}

  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  /// Before it is sent.
  void begin(std::uint64_t number) {
    number_ = number;
    EXPECT_FALSE(underWay_.exchange(true)) << "it is sent twice";
  }
  void notSent() { underWay_ = false; }
  /// It has ended, by what stands in it.
  void end(Clock::time_point toldFrom) {
    EXPECT_TRUE(underWay_.exchange(false)) << "it ends twice";
    switch (delivery()) {
      case Delivery::replied:
        EXPECT_EQ(answer(), number_) << "that is the answer to another request";
        EXPECT_GE(answeredAt(), submittedAt());
        // A grant that is judged by this time would pass for good although its time is over.
        EXPECT_GE(answeredAt(), toldFrom) << "it is older than the thread's wait for it";
        EXPECT_LE(answeredAt(), Clock::now());
        break;
      case Delivery::unsent: {
        const std::lock_guard lock(record_.mutex);
        record_.unsent.push_back(number_);
        break;
      }
      case Delivery::lost:
        break;
      case Delivery::pending:
        ADD_FAILURE() << "it has not ended";
    }
  }

 private:
  void completed() noexcept override {
    end(submittedAt());
    record_.endedInBackground.fetch_add(1);
  }
  /// The same number comes back in one of three forms.
  [[nodiscard]] std::uint64_t answer() {
    const Reply& one =
        reply().isArray() && reply().elements.size() == 1 ? reply().elements[0] : reply();
    return one.isInteger() ? static_cast<std::uint64_t>(one.integer)
                           : std::strtoull(one.text.c_str(), nullptr, 10);
  }

  Record& record_;
  std::atomic<bool> underWay_{false};
  std::uint64_t number_ = 0;
};
using ProbePtr = IntrusivePtr<Probe>;

/// `SAY n` is answered by n in one of several forms; `KEEP n` too, but together with the next SAY.
class Echo {
 public:
  explicit Echo(Record& record) noexcept : record_(&record) {}

  bool operator()(FakeServer::Peer& peer, const FakeServer::Argv& argv) {
    thread_local std::string kept;
    thread_local int fd = -1;
    if (std::exchange(fd, peer.fd()) != peer.fd()) {
      kept.clear();
      // Pieces go out at once.
      const int on = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      seedThread(static_cast<std::uint64_t>(peer.fd()) * 31 + 7);
    }
    record_->executed.at(std::strtoull(argv[1].c_str(), nullptr, 10)) = true;
    switch (draw() % 4) {
      case 0:
        kept += "$" + std::to_string(argv[1].size()) + "\r\n" + argv[1] + "\r\n";
        break;
      case 1:
        kept += "*1\r\n:" + argv[1] + "\r\n";
        break;
      default:
        kept += ":" + argv[1] + "\r\n";
    }
    if (argv[0] == "KEEP") {
      return true;
    }
    const std::string out = std::exchange(kept, {});
    for (std::string_view left = out; !left.empty();) {
      const std::size_t piece =
          draw() % 3 == 0 ? std::min<std::size_t>(left.size(), 1 + draw() % 9) : left.size();
      if (!peer.send(left.substr(0, piece))) {
        return false;
      }
      left.remove_prefix(piece);
      if (draw() % 4 == 0) {
        ::sched_yield();
      }
    }
    return true;
  }

 private:
  Record* record_;
};

class LinkRaces : public testing::Test {
 protected:
  static constexpr std::size_t kThreads = 5;

  LinkRaces()
      : server_(Echo(record_)), link_(server_.port(), [](LinkSettings& settings) {
          settings.replyTimeout = kNever;
          // The server answers it ahead of what it keeps.
          settings.heartbeatInterval = 1h;
          settings.reconnectDelayMin = 1ms;
          settings.reconnectDelayMax = 3ms;
        }) {}

  struct Turbulence {
    std::uint64_t interrupts = 0;  ///< in 1,000 rounds of a thread
    std::uint64_t breaks = 0;
    std::uint64_t hurries = 0;  ///< a caller leaves very soon
    std::uint64_t bursts = 0;   ///< many replies come at once
  };

  void run(const Turbulence& turbulence) {
    ASSERT_TRUE(link_.waitUntilUp());
    const std::uint64_t rounds = fromEnvironment("RLOCK_RACE_ROUNDS", 3'000 / kSlowness);
    const std::uint64_t seed = fromEnvironment("RLOCK_RACE_SEED", 1);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        seedThread(seed * 1000 + i);
        for (std::uint64_t round = 0; round < rounds && !HasFailure(); ++round) {
          one(i, turbulence);
        }
        watch(i, nullptr);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    link_.loop().run([] {});
    // The server has kept answers until somebody says something. After that nobody but the loop is
    // there to read.
    say(Mode::awaitedAtOnce, kNever);
    EXPECT_TRUE(allHaveEnded());
    for (const std::uint64_t number : record_.unsent) {
      EXPECT_FALSE(record_.executed.at(number)) << number << " would be sent once more";
    }
    if (HasFailure()) {
      std::printf("%s\n", replayCommand(seed, rounds).c_str());
    }
  }

  /// Without another call that would read for them.
  [[nodiscard]] bool allHaveEnded() {
    const auto until = Clock::now() + kNever;
    while (record_.endedInBackground < leftToBackground_ && Clock::now() < until) {
      std::this_thread::yield();
    }
    return record_.endedInBackground == leftToBackground_;
  }

  // The requests.

  static bool happens(std::uint64_t perMille) { return draw() % 1000 < perMille; }

  void one(std::size_t thread, const Turbulence& turbulence) {
    if (happens(turbulence.interrupts)) {
      interruptOne();
    }
    if (happens(turbulence.breaks)) {
      link_.link().abandon(Clock::now(), Errc::connectionFailed, "as the test wants it");
    }
    if (happens(turbulence.bursts)) {
      // More than the reader takes at once.
      crowd(20 + draw() % 90);
    }
    const auto patience = happens(turbulence.hurries)
                              ? std::chrono::nanoseconds(std::chrono::microseconds(draw() % 200))
                              : std::chrono::nanoseconds(kNever);
    switch (draw() % 8) {
      case 0:
        background("SAY", false);
        break;
      case 1:
        background("SAY", true);
        break;
      case 2:
        say(Mode::awaited, patience, thread);
        break;
      case 3:
        // Its answer may be the first of many that are there at the same time.
        say(Mode::awaited, patience, thread, happens(turbulence.bursts) ? 20 + draw() % 90 : 0);
        break;
      default:
        say(Mode::awaitedAtOnce, patience, thread);
    }
  }

  /// On this thread, or on the loop's.
  void background(std::string_view what, bool onLoop) {
    auto probe = makeIntrusive<Probe>(record_);
    const auto send = [this, probe, what] {
      probe->begin(++record_.numbers);
      const std::string number = std::to_string(probe->number());
      leftToBackground_.fetch_add(1);
      if (!link_.submit(*probe, {what, number}, Mode::background)) {
        probe->notSent();
        leftToBackground_.fetch_sub(1);
      }
    };
    if (onLoop) {
      link_.loop().loop()->post(send);
    } else {
      send();
    }
  }

  void crowd(std::uint64_t many) {
    for (; many > 0; --many) {
      background("KEEP", false);
    }
    background("SAY", false);
  }

  /// The same request once or several times.
  /// @param following  so many others follow it, and are answered together with it
  void say(Mode mode,
           std::chrono::nanoseconds patience,
           std::size_t thread = kThreads,
           std::uint64_t following = 0) {
    const auto probe = makeIntrusive<Probe>(record_);
    watch(thread, probe);
    for (auto times = draw() % 3 + 1; times > 0; --times) {
      probe->begin(++record_.numbers);
      const std::string number = std::to_string(probe->number());
      const auto before = Clock::now();
      if (draw() % 2 == 0) {
        probe->setSubmitTime(before);
      }
      if (!link_.submit(*probe, {following > 0 ? "KEEP" : "SAY", number}, mode)) {
        probe->notSent();
        std::this_thread::sleep_for(200us);
        return;
      }
      if (following > 0) {
        crowd(following);
      }
      if (mode == Mode::awaited && draw() % 3 == 0) {
        // Somebody else may have read the answer before this thread comes for it.
        std::this_thread::sleep_for(std::chrono::microseconds(draw() % 300));
      }
      const auto from = Clock::now();
      leftToBackground_.fetch_add(1);
      const Awaited awaited = link_.link().await(*probe, before + patience);
      if (awaited != Awaited::complete) {
        if (Clock::now() > before + kNever) {
          std::fprintf(stderr,
                       "an answer does not come\n%s\n",
                       replayCommand(fromEnvironment("RLOCK_RACE_SEED", 1)).c_str());
          std::abort();
        }
        // It ends in the background, and may have done so.
        return;
      }
      leftToBackground_.fetch_sub(1);
      EXPECT_GE(probe->submittedAt(), before);
      probe->end(from);
    }
  }

  // The threads that await them, to be interrupted.

  void watch(std::size_t thread, ProbePtr probe) {
    if (thread < kThreads) {
      const std::lock_guard lock(mutex_);
      watched_[thread].swap(probe);
    }
  }
  void interruptOne() {
    ProbePtr probe;
    {
      const std::lock_guard lock(mutex_);
      probe = watched_[draw() % kThreads];
    }
    if (probe) {
      probe->interrupt(env_);
    }
  }

  LinkHarness& link() { return link_; }

 private:
  Record record_;
  std::atomic<std::uint64_t> leftToBackground_{0};
  std::mutex mutex_;
  std::array<ProbePtr, kThreads> watched_;
  FakeServer server_;
  LinkHarness link_;
  detail::net::LoopEnv env_{link_.loop().loop()};
};

TEST_F(LinkRaces, NothingHappensBesides) {
  run({});
}

TEST_F(LinkRaces, CallersLeave) {
  run({.interrupts = 150, .hurries = 300});
}

TEST_F(LinkRaces, RepliesComeInBursts) {
  run({.hurries = 100, .bursts = 40});
}

TEST_F(LinkRaces, TheConnectionBreaks) {
  run({.interrupts = 50, .breaks = 20, .hurries = 100, .bursts = 5});
}

// The reader that has its own reply leaves, while another thread waits for the next one and nobody
// for the last. No other call comes that would read for them.
TEST_F(LinkRaces, TheLastRepliesHaveAReader) {
  ASSERT_TRUE(link().waitUntilUp());
  const std::uint64_t seed = fromEnvironment("RLOCK_RACE_SEED", 1);
  const std::uint64_t last = seed + fromEnvironment("RLOCK_RACE_ROUNDS", 1'000 / kSlowness);
  std::barrier together(3);
  std::atomic<bool> over{false};
  const auto begin = [&](std::uint64_t round, std::uint64_t thread) {
    seedThread(3 * round + thread);
    together.arrive_and_wait();
    return !over;
  };
  std::thread waiting([&] {
    for (std::uint64_t round = seed; begin(round, 1); ++round) {
      say(Mode::awaitedAtOnce, kNever);
      together.arrive_and_wait();
    }
  });
  std::thread leaving([&] {
    for (std::uint64_t round = seed; begin(round, 2); ++round) {
      background("SAY", false);
      together.arrive_and_wait();
    }
  });
  std::uint64_t round = seed;
  for (; round < last && !HasFailure(); ++round) {
    begin(round, 0);
    say(Mode::awaitedAtOnce, kNever);
    together.arrive_and_wait();
    EXPECT_TRUE(allHaveEnded()) << replayCommand(round);
  }
  over = true;
  begin(round, 0);
  waiting.join();
  leaving.join();
}

// The reader's own reply is the first of more than it takes at once, and nothing comes after them.
TEST_F(LinkRaces, NoReplyOfManyIsLeftBehind) {
  ASSERT_TRUE(link().waitUntilUp());
  const std::uint64_t seed = fromEnvironment("RLOCK_RACE_SEED", 1);
  const std::uint64_t last = seed + fromEnvironment("RLOCK_RACE_ROUNDS", 200 / kSlowness);
  for (std::uint64_t round = seed; round < last && !HasFailure(); ++round) {
    seedThread(round);
    say(Mode::awaited, kNever, kThreads, 33 + draw() % 90);
    EXPECT_TRUE(allHaveEnded()) << replayCommand(round);
  }
}

}  // namespace
}  // namespace rlock::races
