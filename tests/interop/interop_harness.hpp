// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interop/peer.hpp"
#include "support/eventually.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/temp_dir.hpp"
#include "support/unprotected_counter.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::test::interop {

using namespace std::chrono_literals;

/// A kind of lock, and the version of Redisson that uses it too.
struct Subject {
  std::string kind;
  std::string redisson;
};
std::ostream& operator<<(std::ostream& out, const Subject& subject);
/// `plain_redisson_4_7_0`, for the names of tests.
std::string subjectName(const ::testing::TestParamInfo<Subject>& info);

/// The versions the tests run against.
inline const std::string kNewest = RLOCK_INTEROP_REDISSON;
inline const std::string kOldest = RLOCK_INTEROP_REDISSON_OLD;

/// All of these kinds with the newest version.
std::vector<Subject> newest(const std::vector<std::string>& kinds);

/// The longest of the 99 of 100 shortest.
std::chrono::microseconds percentile99(std::vector<std::chrono::nanoseconds> times);
/// Such as "1.3 ms".
std::string inMs(std::chrono::microseconds time);

/// One server, a Redisson process and an rlock process. What the test finds is also written to a
/// file, from which write_matrix.sh makes the table of docs/redisson.md.
class InteropTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// What the server is reached by, from all processes.
  [[nodiscard]] std::string uri() const { return server_->uri(); }
  [[nodiscard]] const RedisServer& server() const { return *server_; }
  [[nodiscard]] RawRedis& raw() { return *raw_; }
  [[nodiscard]] const TempDir& files() const { return files_; }

  /// Which row and column of the table this is; the first line of a test. Skips, or fails, when
  /// that version cannot be had.
  void begin(std::string_view testCase, const Subject& subject);
  /// What the table says beside the result.
  void note(std::string text) { note_ = std::move(text); }

  /// The process of this side, started when first asked for.
  [[nodiscard]] Peer& peer(Side side);
  /// Another one, of which the test takes care.
  [[nodiscard]] std::unique_ptr<Peer> newPeer(Side side) const;
  /// Opens client 1 of both sides. Where `tuning` does not say how long a fair waiter's place
  /// lasts, Redisson's is a quarter of ours, as docs/redisson.md asks for.
  void openBoth(const Peer::Tuning& tuning);

  /// Does what makes an object of this kind usable as a lock, such as giving a semaphore its
  /// permit.
  void prepare(const std::string& kind, const std::string& name);

 private:
  std::unique_ptr<RedisServer> server_;
  std::unique_ptr<RawRedis> raw_;
  TempDir files_;
  std::unique_ptr<Peer> peers_[2];
  std::string case_;
  Subject subject_;
  std::string note_;
};

/// A test of one kind and version.
class SubjectTest : public InteropTest, public ::testing::WithParamInterface<Subject> {
 protected:
  [[nodiscard]] const std::string& kind() const { return GetParam().kind; }
  /// A name that fits the kind: locks that consist of others have several.
  [[nodiscard]] std::string objectName() const;
  /// The verbs that take and give back an object of this kind.
  [[nodiscard]] Call startAcquire(Peer& peer, int owner, const std::string& name);
  Answer release(Peer& peer, int owner, const std::string& name, const Answer& acquired);
};

/// The answer has no error.
#define ASSERT_ANSWER(expression)                                    \
  do {                                                               \
    const ::rlock::test::interop::Answer asked = (expression);       \
    ASSERT_TRUE(asked.ok()) << #expression << " answered " << asked; \
  } while (false)

}  // namespace rlock::test::interop
