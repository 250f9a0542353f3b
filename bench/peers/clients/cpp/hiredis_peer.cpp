// SPDX-License-Identifier: Apache-2.0
// Blocking hiredis, a connection for each lock, uncontended only. By default it sends what Redisson
// does, and with RLOCK_PEER_PROTOCOL=set the cheapest protocol that there is: SET NX PX, and a
// script that deletes the key if it is still one's own. That one has no re-entry, no wake-up and no
// watchdog.
#include "peer.hpp"

#include <fmt/format.h>
#include <hiredis/hiredis.h>

#include <array>
#include <cstdlib>
#include <initializer_list>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <random>
#include <string_view>
#include <sys/socket.h>

namespace {

using namespace rlock::bench;

/// As wire.md of Redisson's protocol describes them: the same commands on the server, in our words.
constexpr const char* kAcquire =
    "local held = redis.call('exists', KEYS[1]) == 1 "
    "if held and redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return redis.call('pttl', "
    "KEYS[1]) end "
    "redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil";
constexpr const char* kRelease =
    "local before = redis.call('get', KEYS[3]) if before then return tonumber(before) end "
    "if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end "
    "local left = redis.call('hincrby', KEYS[1], ARGV[3], -1) "
    "if left > 0 then redis.call('pexpire', KEYS[1], ARGV[2]) "
    "redis.call('set', KEYS[3], 0, 'px', ARGV[5]) return 0 end "
    "redis.call('del', KEYS[1]) redis.call(ARGV[4], KEYS[2], ARGV[1]) "
    "redis.call('set', KEYS[3], 1, 'px', ARGV[5]) return 1";
constexpr const char* kDeleteOwn =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
constexpr const char* kOwner = "6f1a0c5e-37a2-4f4e-9d3c-0123456789ab:1";

class Connection {
 public:
  explicit Connection(std::uint16_t port) : context_(redisConnect("127.0.0.1", port), &redisFree) {
    if (!context_ || context_->err != 0) {
      throw std::runtime_error("no connection");
    }
    const int on = 1;
    setsockopt(context_->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }

  /// Writes the command with those before; its reply is thrown away when another one is read.
  void send(std::initializer_list<std::string_view> words) {
    append(words);
    ++unread_;
    for (int done = 0; done == 0;) {
      if (redisBufferWrite(context_.get(), &done) != REDIS_OK) {
        throw std::runtime_error(context_->errstr);
      }
    }
  }
  using Reply = std::unique_ptr<redisReply, decltype(&freeReplyObject)>;
  Reply run(std::initializer_list<std::string_view> words) {
    append(words);
    for (; unread_ > 0; --unread_) {
      read();
    }
    return read();
  }
  std::string load(const char* script) {
    const Reply reply = run({"SCRIPT", "LOAD", script});
    return {reply->str, reply->len};
  }

 private:
  void append(std::initializer_list<std::string_view> words) {
    std::array<const char*, 16> data{};
    std::array<std::size_t, 16> sizes{};
    int count = 0;
    for (const std::string_view word : words) {
      data[static_cast<std::size_t>(count)] = word.data();
      sizes[static_cast<std::size_t>(count++)] = word.size();
    }
    redisAppendCommandArgv(context_.get(), count, data.data(), sizes.data());
  }
  Reply read() {
    void* reply = nullptr;
    if (redisGetReply(context_.get(), &reply) != REDIS_OK) {
      throw std::runtime_error(context_->errstr);
    }
    return {static_cast<redisReply*>(reply), &freeReplyObject};
  }

  std::unique_ptr<redisContext, decltype(&redisFree)> context_;
  int unread_ = 0;
};

void expect(bool granted) {
  if (!granted) {
    throw std::runtime_error("refused");
  }
}

class RedissonsProtocol final : public peers::Lock {
 public:
  RedissonsProtocol(std::uint16_t port, std::string name)
      : connection_(port),
        name_(std::move(name)),
        channel_("redisson_lock__channel:{" + name_ + "}"),
        acquire_(connection_.load(kAcquire)),
        release_(connection_.load(kRelease)) {}

  void lock() override {
    expect(connection_.run({"EVALSHA", acquire_, "1", name_, "30000", kOwner})->type ==
           REDIS_REPLY_NIL);
  }
  void unlock() override {
    const std::string latch =
        fmt::format("redisson_unlock_latch:{{{}}}:{:016x}{:016x}", name_, random_(), random_());
    const auto reply = connection_.run({"EVALSHA",
                                        release_,
                                        "3",
                                        name_,
                                        channel_,
                                        latch,
                                        "0",
                                        "30000",
                                        kOwner,
                                        "PUBLISH",
                                        "13500"});
    expect(reply->type == REDIS_REPLY_INTEGER && reply->integer == 1);
    connection_.send({"DEL", latch});
  }

 private:
  Connection connection_;
  const std::string name_;
  const std::string channel_;
  const std::string acquire_;
  const std::string release_;
  std::mt19937_64 random_{std::random_device{}()};
};

class SetProtocol final : public peers::Lock {
 public:
  SetProtocol(std::uint16_t port, std::string name)
      : connection_(port), name_(std::move(name)), release_(connection_.load(kDeleteOwn)) {}

  void lock() override {
    expect(connection_.run({"SET", name_, kOwner, "NX", "PX", "30000"})->type ==
           REDIS_REPLY_STATUS);
  }
  void unlock() override {
    expect(connection_.run({"EVALSHA", release_, "1", name_, kOwner})->integer == 1);
  }

 private:
  Connection connection_;
  const std::string name_;
  const std::string release_;
};

class Hiredis final : public peers::Client {
 public:
  explicit Hiredis(std::uint16_t port) : port_(port) {
    const char* protocol = std::getenv("RLOCK_PEER_PROTOCOL");
    set_ = protocol != nullptr && std::string_view(protocol) == "set";
  }
  std::unique_ptr<peers::Lock> lock(const std::string& name) override {
    if (set_) {
      return std::make_unique<SetProtocol>(port_, name);
    }
    return std::make_unique<RedissonsProtocol>(port_, name);
  }

 private:
  const std::uint16_t port_;
  bool set_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  return peers::serve(
      argc, argv, [](std::uint16_t port) { return std::make_unique<Hiredis>(port); });
}
