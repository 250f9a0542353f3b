// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "integration/lock_harness.hpp"

#include <algorithm>

namespace rlock::test {

/// Both sides of a read-write lock, used by one face.
struct FaceSides {
  FaceSides(Face face, const ReadWriteLock& lock)
      : read(face, lock.readLock()), write(face, lock.writeLock()) {}

  FaceLock read;
  FaceLock write;
};

/// A resource for a read-write lock. As with Resource, which it contains, nothing but the lock
/// protects it, and a failure of its test is final.
class SharedResource {
 public:
  void write(std::chrono::microseconds pause = {}) {
    look(readers_.load(std::memory_order_relaxed) == 0);
    writing_.use(pause);
    look(readers_.load(std::memory_order_relaxed) == 0);
  }
  void read(std::chrono::microseconds pause = {}) {
    readers_.fetch_add(1, std::memory_order_relaxed);
    const long seen = writing_.value();
    std::this_thread::sleep_for(pause);
    look(writing_.value() == seen);
    reads_.fetch_add(1, std::memory_order_relaxed);
    readers_.fetch_sub(1, std::memory_order_relaxed);
  }
  [[nodiscard]] long written() const { return writing_.value(); }
  [[nodiscard]] long readings() const { return reads_.load(); }
  [[nodiscard]] long overlaps() const { return writing_.overlaps() + overlaps_.load(); }

 private:
  void look(bool good) { overlaps_.fetch_add(good ? 0 : 1, std::memory_order_relaxed); }

  Resource writing_;
  std::atomic<int> readers_{0};
  std::atomic<long> reads_{0};
  std::atomic<long> overlaps_{0};
};

using Fields = std::map<std::string, std::string>;

/// The common part of tests of read-write locks, over LockTest or a class derived from it.
template <class Base>
class ReadWriteFixture : public Base {
 protected:
  using Milliseconds = std::chrono::milliseconds;
  using Base::raw;

  [[nodiscard]] static std::string braced(const std::string& name) {
    return name.find('{') == std::string::npos ? "{" + name + "}" : name;
  }
  [[nodiscard]] static std::string rwChannel(const std::string& name) {
    return "redisson_rwlock:" + braced(name);
  }
  [[nodiscard]] static std::string intentKey(const std::string& name) {
    return "rlock_rw_intent:" + braced(name);
  }
  [[nodiscard]] static std::string holdKey(const std::string& name,
                                           const std::string& owner,
                                           long index) {
    return braced(name) + ":" + owner + ":rwlock_timeout:" + std::to_string(index);
  }
  [[nodiscard]] std::set<std::string> holdKeys() { return raw().keys("*:rwlock_timeout:*"); }

  // Another program's client, command by command what its scripts do.

  void rawRead(const std::string& name, const std::string& owner, Milliseconds lease) {
    if (!raw().hget(name, "mode")) {
      raw().run({"HSET", name, "mode", "read"});
    }
    const long count = raw().run({"HINCRBY", name, owner, "1"}).integer();
    raw().run({"SET", holdKey(name, owner, count), "1", "PX", std::to_string(lease.count())});
    atLeast(name, lease.count());
  }
  void rawReadRelease(const std::string& name, const std::string& owner) {
    const long left = raw().run({"HINCRBY", name, owner, "-1"}).integer();
    if (left == 0) {
      raw().run({"HDEL", name, owner});
    }
    raw().del(holdKey(name, owner, left + 1));
    std::int64_t longest = -2;
    for (const auto& [field, count] : raw().hgetall(name)) {
      for (long i = field == "mode" ? 0 : std::stol(count); i > 0; --i) {
        longest = std::max(longest, raw().pttl(holdKey(name, field, i)));
      }
    }
    if (longest > 0) {
      raw().run({"PEXPIRE", name, std::to_string(longest)});
    } else if (raw().hget(name, "mode") != "write") {
      raw().del(name);
      raw().publish(rwChannel(name), "0");
    }
  }
  void rawWrite(const std::string& name, const std::string& owner, Milliseconds lease) {
    raw().run({"HSET", name, "mode", "write"});
    raw().run({"HINCRBY", name, owner + ":write", "1"});
    atLeast(name, lease.count());
  }
  void rawWriteRelease(const std::string& name, const std::string& owner) {
    raw().run({"HDEL", name, owner + ":write"});
    if (raw().hgetall(name).size() == 1) {
      raw().del(name);
      raw().publish(rwChannel(name), "1");
    } else {
      raw().run({"HSET", name, "mode", "read"});
    }
  }

 private:
  void atLeast(const std::string& name, std::int64_t ms) {
    if (raw().pttl(name) < ms) {
      raw().run({"PEXPIRE", name, std::to_string(ms)});
    }
  }
};

using ReadWriteTest = ReadWriteFixture<LockTest>;

class ReadWriteFaceTest : public ReadWriteFixture<FaceTest> {
 protected:
  [[nodiscard]] FaceSides sidesOf(Client& client, std::string_view name) {
    return {GetParam(), client.getReadWriteLock(name)};
  }
};

/// By each face, and once; the slow ones wait for leases and watchdogs.
class ReadWriteConformance : public ReadWriteFaceTest {};
class ReadWriteConformanceSlow : public ReadWriteFaceTest {};
class ReadWriteLoad : public ReadWriteTest {};
class ReadWriteLoadSlow : public ReadWriteTest {};

}  // namespace rlock::test
