// SPDX-License-Identifier: Apache-2.0

// The connection for subscriptions while an allocation fails.

#include "fault/faults.hpp"
#include "integration/fake_server.hpp"
#include "integration/net_harness.hpp"
#include "net/pubsub_link.hpp"
#include "support/eventually.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::test {
namespace {

using namespace std::chrono_literals;
using detail::net::LinkSettings;
using detail::net::PubSubLink;

/// Longer than a string that needs no memory.
constexpr std::string_view kChannel = "a-channel-with-a-name-that-is-long";

std::string bulk(std::string_view text) {
  return "$" + std::to_string(text.size()) + "\r\n" + std::string(text) + "\r\n";
}

/// Confirms each subscription, and publishes a message in it.
const FakeServer::Handler kPublishes = [](FakeServer::Peer& peer, const FakeServer::Argv& argv) {
  return argv[0] == "SUBSCRIBE" && argv.size() == 2 &&
         peer.send("*3\r\n" + bulk("subscribe") + bulk(argv[1]) + ":1\r\n") &&
         peer.send("*3\r\n" + bulk("message") + bulk(argv[1]) + bulk("hello"));
};

/// A subscriber with its loop; counts what it hears.
class Subscriber : private detail::net::PubSubEvents {
 public:
  explicit Subscriber(std::uint16_t port) {
    harness_.loop()->setErrorHook([](const char* /*text*/) {});
    LinkSettings settings = settingsFor({tcp(port)});
    settings.reconnectDelayMin = 1ms;
    settings.reconnectDelayMax = 10ms;
    harness_.run([&] {
      link_ = std::make_unique<PubSubLink>(
          harness_.loop(), std::move(settings), static_cast<detail::net::PubSubEvents&>(*this));
    });
  }
  Subscriber(const Subscriber&) = delete;
  Subscriber& operator=(const Subscriber&) = delete;
  ~Subscriber() override {
    harness_.run([this] { link_.reset(); });
  }

  ///@{
  /// Returns whether there was memory for it.
  bool subscribe() {
    return did([this] { link_->subscribe(std::string(kChannel)); });
  }
  bool renew() {
    return did([this] { link_->renew(); });
  }
  ///@}
  [[nodiscard]] int messages() const { return messages_; }
  [[nodiscard]] int downs() const { return downs_; }

 private:
  template <class F>
  bool did(F act) {
    return harness_.run([&act] {
      try {
        act();
        return true;
      } catch (const std::bad_alloc&) {
        return false;
      }
    });
  }
  void onSubscribed(const std::string& /*channel*/) override {}
  void onRefused(const std::string& /*channel*/, const Error& /*error*/) override {}
  void onMessage(const std::string& /*channel*/, std::string_view /*payload*/) override {
    ++messages_;
  }
  void onUp() override {}
  void onDown(const Error& /*error*/) override { ++downs_; }

  LoopHarness harness_;
  std::unique_ptr<PubSubLink> link_;
  std::atomic<int> messages_{0};
  std::atomic<int> downs_{0};
};

TEST(SubscriberMemory, MessagesComeWhateverFailsUntilTheFirst) {
  FakeServer server(kPublishes);
  for (long k = 1;; ++k) {
    ASSERT_LT(k, 2000);
    Subscriber subscriber(server.port());
    const FailedAllocation failure(k, FailedAllocation::Of::otherThreads);
    if (!subscriber.subscribe()) {
      // The caller has heard of it and asks again.
      ASSERT_TRUE(subscriber.subscribe()) << k;
    }
    ASSERT_EVENTUALLY(kLong, subscriber.messages() > 0) << k;
    FailedAllocation::disarm();
    if (!FailedAllocation::happened()) {
      break;
    }
  }
}

TEST(SubscriberMemory, ALossIsToldAndMessagesComeAgain) {
  FakeServer server(kPublishes);
  Subscriber subscriber(server.port());
  ASSERT_TRUE(subscriber.subscribe());
  for (long k = 1;; ++k) {
    ASSERT_LT(k, 2000);
    ASSERT_EVENTUALLY(kLong, subscriber.messages() > 0) << k;
    const int downs = subscriber.downs();
    const int messages = subscriber.messages();
    const FailedAllocation failure(k, FailedAllocation::Of::otherThreads);
    if (!subscriber.renew()) {
      ASSERT_TRUE(subscriber.renew()) << k;
    }
    ASSERT_EVENTUALLY(kLong, subscriber.downs() > downs) << k;
    ASSERT_EVENTUALLY(kLong, subscriber.messages() > messages) << k;
    FailedAllocation::disarm();
    if (!FailedAllocation::happened()) {
      break;
    }
  }
}

}  // namespace
}  // namespace rlock::test
