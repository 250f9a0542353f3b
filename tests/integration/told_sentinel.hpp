// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "integration/fake_server.hpp"

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <sys/socket.h>

namespace rlock::test {

/// A Sentinel that says what the test tells it to, to one listener at a time.
class ToldSentinel {
 public:
  explicit ToldSentinel(std::uint16_t master) : master_(master) {}

  [[nodiscard]] std::string uri() const { return uriOf({this}); }
  [[nodiscard]] static std::string uriOf(std::initializer_list<const ToldSentinel*> sentinels) {
    std::string uri = "redis+sentinel://";
    for (const ToldSentinel* each : sentinels) {
      uri += (uri.back() == '/' ? "127.0.0.1:" : ",127.0.0.1:");
      uri += std::to_string(each->server_.port());
    }
    return uri + "/mymaster";
  }
  /// The master that it names from here on; 0: it knows no such master.
  void answer(std::uint16_t master) { master_ = master; }
  /// The same, from the next subscription on, and before it is confirmed.
  void answerOnceSubscribed(std::uint16_t master) { onceSubscribed_ = master; }
  /// It does not say when the master moves, from here on.
  void refuse() { refuses_ = true; }
  [[nodiscard]] bool heard() const { return listener_ >= 0; }
  /// How often it was asked to say when the master moves.
  [[nodiscard]] int subscriptions() const { return subscriptions_; }
  /// Says unasked that the master has moved.
  void announce(std::uint16_t master) const {
    announce("mymaster 127.0.0.1 1 127.0.0.1 " + std::to_string(master));
  }
  /// The same in other words.
  void announce(const std::string& payload) const {
    FakeServer::Peer(listener_).send("*3\r\n" + bulk("message") + bulk("+switch-master") +
                                     bulk(payload));
  }
  /// Ends the connection of the listener.
  void cut() { ::shutdown(listener_.exchange(-1), SHUT_RDWR); }

 private:
  static std::string bulk(const std::string& text) {
    return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
  }
  bool reply(const FakeServer::Peer& peer, const FakeServer::Argv& argv) {
    if (argv[0] == "SUBSCRIBE" && refuses_) {
      ++subscriptions_;
      return peer.send("-NOPERM No permissions to access a channel\r\n");
    }
    if (argv[0] == "SUBSCRIBE") {
      if (const std::uint16_t master = onceSubscribed_.exchange(0); master != 0) {
        master_ = master;
      }
      const bool sent = peer.send("*3\r\n" + bulk("subscribe") + bulk(argv[1]) + ":1\r\n");
      ++subscriptions_;
      listener_ = peer.fd();
      return sent;
    }
    if (argv[1] == "SENTINELS") {
      return peer.send("*0\r\n");
    }
    const std::uint16_t master = master_;
    return peer.send(master == 0 ? "*-1\r\n"
                                 : "*2\r\n" + bulk("127.0.0.1") + bulk(std::to_string(master)));
  }

  std::atomic<std::uint16_t> master_;
  std::atomic<std::uint16_t> onceSubscribed_{0};
  std::atomic<bool> refuses_{false};
  std::atomic<int> listener_{-1};
  std::atomic<int> subscriptions_{0};
  FakeServer server_{
      [this](FakeServer::Peer& peer, const FakeServer::Argv& argv) { return reply(peer, argv); }};
};

}  // namespace rlock::test
