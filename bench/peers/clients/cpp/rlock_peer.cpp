// SPDX-License-Identifier: Apache-2.0
// rlock by its public interface only, with its defaults.
#include "peer.hpp"
#include <rlock/rlock.hpp>

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <semaphore>
#include <thread>
#include <utility>

namespace {

using namespace rlock::bench;
using namespace std::chrono_literals;

class WatchedLock final : public peers::Lock {
 public:
  explicit WatchedLock(rlock::RLock lock) : lock_(std::move(lock)) {}
  void lock() override { lock_.lock(); }
  void unlock() override { lock_.unlock(); }

 private:
  rlock::RLock lock_;
};

/// One pair after the other until the load ends.
class Chain {
 public:
  Chain(rlock::RLock lock, peers::Load& load, std::size_t worker, std::atomic<std::size_t>& running)
      : lock_(std::move(lock)), load_(&load), worker_(worker), running_(&running) {}

  void next() {
    if (load_->ended()) {
      --*running_;
      return;
    }
    began_ = now();
    lock_.lockAsync({}, owner_).start([this](const rlock::Result<void>& locked) {
      check(locked);
      lock_.unlockAsync(owner_).start([this](const rlock::Result<void>& unlocked) {
        check(unlocked);
        load_->count(worker_, began_);
        next();
      });
    });
  }

 private:
  static void check(const rlock::Result<void>& result) {
    if (!result) {
      std::fprintf(stderr, "%s\n", result.error().what());
      std::abort();
    }
  }

  rlock::RLock lock_;
  rlock::OwnerId owner_ = rlock::newOwner();
  peers::Load* load_;
  std::size_t worker_;
  std::atomic<std::size_t>* running_;
  std::int64_t began_ = 0;
};

class Rlock final : public peers::Client {
 public:
  explicit Rlock(std::uint16_t port)
      : client_(rlock::Client::connect(fmt::format("redis://127.0.0.1:{}", port))) {}

  std::unique_ptr<peers::Lock> lock(const std::string& name) override {
    return std::make_unique<WatchedLock>(client_.getLock(name));
  }
  std::unique_ptr<peers::Lock> sharedLock(const std::string& name) override { return lock(name); }

  std::function<void()> startChains(std::size_t count, peers::Load& load) override {
    running_ = count;
    chains_.clear();
    for (std::size_t i = 0; i < count; ++i) {
      chains_.push_back(std::make_unique<Chain>(
          client_.getLock(fmt::format("peers:async:{}", i)), load, i, running_));
    }
    for (const auto& chain : chains_) {
      chain->next();
    }
    return [this] {
      while (running_ > 0) {
        std::this_thread::sleep_for(1ms);
      }
    };
  }

  void hold(std::size_t locks) override {
    for (std::size_t i = 0; i < locks; ++i) {
      held_.push_back(client_.getLock(fmt::format("peers:hold:{:08}", i)));
    }
    forEachHeld([this](rlock::RLock& lock) { return lock.lockAsync({}, owner_); });
  }
  void free() override {
    forEachHeld([this](rlock::RLock& lock) { return lock.unlockAsync(owner_); });
    held_.clear();
  }

 private:
  /// With 512 under way at a time.
  template <class Start>
  void forEachHeld(Start start) {
    constexpr std::ptrdiff_t kAtOnce = 512;
    std::counting_semaphore<kAtOnce> room(kAtOnce);
    std::atomic<int> failures{0};
    for (rlock::RLock& lock : held_) {
      room.acquire();
      start(lock).start([&](const rlock::Result<void>& result) {
        failures += result ? 0 : 1;
        room.release();
      });
    }
    for (std::ptrdiff_t i = 0; i < kAtOnce; ++i) {
      room.acquire();
    }
    if (failures > 0) {
      throw std::runtime_error(fmt::format("{} failed", failures.load()));
    }
  }

  rlock::Client client_;
  const rlock::OwnerId owner_ = rlock::newOwner();
  std::vector<rlock::RLock> held_;
  std::vector<std::unique_ptr<Chain>> chains_;
  std::atomic<std::size_t> running_{0};
};

}  // namespace

int main(int argc, char** argv) {
  return peers::serve(argc, argv, [](std::uint16_t port) { return std::make_unique<Rlock>(port); });
}
