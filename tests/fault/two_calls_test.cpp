// SPDX-License-Identifier: Apache-2.0

// Two things at once, in every order: while one call is about to take its first mutex, its second,
// and so on, something else happens and is over.

#include "fault/faults.hpp"
#include "integration/lock_harness.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <future>

#if !defined(__SANITIZE_THREAD__)

namespace rlock::test {
namespace {

class TwoCalls : public SafetyTest {
 protected:
  /// Long enough for whatever does not wait for the call that it meets; short, because there are
  /// many orders.
  static constexpr std::chrono::milliseconds kMeanwhile{60};

  struct Call {
    /// With a new client; what it gets is used by the other two.
    std::function<void(Client&)> prepare = [](Client&) {};
    std::function<void(Client&)> call;
    std::function<void(Client&)> meanwhile;
    std::function<void(Client&)> check = [](Client&) {};
  };

  /// Runs it in each order.
  void inEachOrder(const Call& pair, const std::function<Options()>& settings) {
    for (long k = 1;; ++k) {
      SCOPED_TRACE("before mutex " + std::to_string(k));
      ASSERT_LT(k, 500);
      raw().command({"FLUSHALL"});
      bool happened = false;
      {
        Client client = Client::connect(settings());
        RLock warm = client.getLock("warm");
        warm.lock();
        warm.unlock();
        pair.prepare(client);
        std::future<void> other;
        {
          const AtMutex moment(k, [&] {
            other = std::async(std::launch::async, [&] { pair.meanwhile(client); });
            other.wait_for(scaled(kMeanwhile));
          });
          pair.call(client);
          happened = AtMutex::happened();
        }
        if (other.valid()) {
          ASSERT_TRUE(ready(other, kLong)) << "it waits for ever";
          other.get();
        }
        pair.check(client);
      }
      if (HasFailure() || !happened) {
        return;
      }
    }
  }
  void inEachOrder(const Call& pair) {
    inEachOrder(pair, [this] { return options(); });
  }
};

TEST_F(TwoCalls, AcquiringAndClosing) {
  for (const bool fair : {false, true}) {
    std::optional<Lease> lease;
    std::string outcome;
    inEachOrder({.prepare = [&](Client&) { lease.reset(); },
                 .call =
                     [&](Client& client) {
                       outcome = outcomeOf([&] {
                         lease = (fair ? client.getFairLock("l") : client.getLock("l")).acquire();
                       });
                     },
                 .meanwhile = [](Client& client) { client.close(kLong); },
                 .check =
                     [&](Client& client) {
                       client.close(kLong);
                       EXPECT_TRUE(outcome == "ok" || outcome == "closed") << outcome;
                       EXPECT_TRUE(!lease || !lease->held());
                       EXPECT_EQ(raw().keys(), std::set<std::string>());
                     }});
  }
}

TEST_F(TwoCalls, ReleasingAndClosing) {
  std::optional<Lease> lease;
  inEachOrder({.prepare = [&](Client& client) { lease = client.getLock("l").acquire(); },
               .call = [&](Client&) { static_cast<void>(outcomeOf([&] { lease->release(); })); },
               .meanwhile = [](Client& client) { client.close(kLong); },
               .check =
                   [&](Client& client) {
                     client.close(kLong);
                     EXPECT_FALSE(lease->held());
                     EXPECT_EQ(raw().keys(), std::set<std::string>());
                   }});
}

// In the name of another thread, which ends. Nobody is left to release what it would hold.
TEST_F(TwoCalls, AcquiringAndTheEndOfTheOwnersThread) {
  std::jthread owner;
  OwnerId id{};
  inEachOrder({.prepare =
                   [&](Client&) {
                     std::promise<OwnerId> known;
                     owner = std::jthread([&](const std::stop_token& stop) {
                       std::promise<void> end;
                       const std::stop_callback ending(stop, [&] { end.set_value(); });
                       known.set_value(currentOwner());
                       end.get_future().wait();
                     });
                     id = known.get_future().get();
                   },
               .call =
                   [&](Client& client) {
                     EXPECT_TRUE(client.getLock("l").tryLockAsync(AcquireOptions{}, id).get());
                   },
               .meanwhile =
                   [&](Client&) {
                     owner.request_stop();
                     owner.join();
                   },
               .check =
                   [&](Client&) {
                     if (owner.joinable()) {
                       owner.request_stop();
                       owner.join();
                     }
                     EXPECT_EVENTUALLY(kLong, !raw().exists("l")) << "it is renewed for ever";
                   }},
              [this] { return options(600ms); });
}

TEST_F(TwoCalls, AcquiringAgainAndAForcedRelease) {
  std::optional<Lease> first;
  std::optional<Lease> second;
  Client stranger = connect();
  const OwnerId owner = newOwner();
  inEachOrder(
      {.prepare =
           [&](Client& client) {
             first = client.getLock("l").acquire({}, owner);
             ASSERT_EVENTUALLY(kLong, raw().numsub("rlock_client:" + client.id()) == 1);
           },
       .call = [&](Client& client) { second = client.getLock("l").acquire({}, owner); },
       .meanwhile = [&](Client&) { stranger.getLock("l").forceUnlock(); },
       .check =
           [&](Client& client) {
             // Forced before or after: what is held here is what is held there.
             EXPECT_EVENTUALLY(kLong, second->held() == raw().exists("l"));
             if (second->held()) {
               EXPECT_EQ(client.getLock("l").getHoldCountAsync(owner).get(), first->held() ? 2 : 1);
               EXPECT_EQ(second->release(),
                         first->held() ? ReleaseResult::stillHeld : ReleaseResult::released);
             }
             static_cast<void>(outcomeOf([&] { first->release(); }));
             EXPECT_FALSE(raw().exists("l"));
           }});
}

TEST_F(TwoCalls, ReleasingAndAForcedRelease) {
  std::optional<Lease> lease;
  Client stranger = connect();
  const OwnerId theirs = newOwner();
  bool theyHaveIt = false;
  inEachOrder(
      {.prepare =
           [&](Client& client) {
             theyHaveIt = false;
             lease = client.getLock("l").acquire();
           },
       .call = [&](Client&) { static_cast<void>(outcomeOf([&] { lease->release(); })); },
       .meanwhile =
           [&](Client&) {
             RLock lock = stranger.getLock("l");
             static_cast<void>(lock.forceUnlock());
             theyHaveIt = lock.tryLockAsync(AcquireOptions{}, theirs).get();
           },
       .check =
           [&](Client&) {
             EXPECT_FALSE(lease->held());
             EXPECT_EQ(raw().exists("l"), theyHaveIt) << "a late release took it away";
             if (theyHaveIt) {
               EXPECT_EQ(outcomeOf([&] { stranger.getLock("l").unlockAsync(theirs).get(); }), "ok");
             }
           }});
}

TEST_F(TwoCalls, ReleasingAGroupAndTheLossOfAMember) {
  std::optional<Lease> lease;
  std::optional<ReleaseResult> answer;
  Client stranger = connect();
  inEachOrder({.prepare =
                   [&](Client& client) {
                     answer.reset();
                     lease = multiLock({client.getLock("a"), client.getLock("b")}).acquire();
                     ASSERT_EVENTUALLY(kLong, raw().numsub("rlock_client:" + client.id()) == 1);
                   },
               .call = [&](Client&) { answer = lease->release(); },
               .meanwhile =
                   [&](Client&) {
                     const std::stop_token lost = lease->lostToken();
                     static_cast<void>(stranger.getLock("a").forceUnlock());
                     static_cast<void>(
                         eventually(kMeanwhile, [&] { return lost.stop_requested(); }));
                   },
               .check =
                   [&](Client&) {
                     EXPECT_NE(answer, ReleaseResult::stillHeld) << "it was held once";
                     EXPECT_FALSE(lease->held());
                     EXPECT_EVENTUALLY(kLong, !raw().exists("a") && !raw().exists("b"));
                   }});
}

TEST_F(TwoCalls, WaitingAndBeingStopped) {
  std::stop_source stop;
  std::string answer;
  Client holder = connect();
  const OwnerId other = newOwner();
  inEachOrder(
      {.prepare =
           [&](Client&) {
             stop = std::stop_source();
             EXPECT_TRUE(holder.getLock("l").tryLockAsync(AcquireOptions{}, other).get());
           },
       .call =
           [&](Client& client) {
             answer = answerOf(
                 [&] { return client.getLock("l").tryLock(stop.get_token(), scaled(200ms)); });
           },
       .meanwhile =
           [&](Client&) {
             holder.getLock("l").unlockAsync(other).get();
             stop.request_stop();
           },
       .check =
           [&](Client& client) {
             EXPECT_TRUE(answer == "true" || answer == "cancelled" || answer == "false") << answer;
             if (answer == "true") {
               client.getLock("l").unlock();
             }
             static_cast<void>(outcomeOf([&] { holder.getLock("l").unlockAsync(other).get(); }));
             EXPECT_EVENTUALLY(kLong, !raw().exists("l")) << "held by nobody who knows";
           }});
}

}  // namespace
}  // namespace rlock::test

#endif
