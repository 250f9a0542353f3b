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
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::test::interop {

using namespace std::chrono_literals;

/// What both sides connect to. A further form is one more case in InteropTest::startServers(); the
/// processes of both sides go by the scheme of the URI.
enum class ServerForm { single };

/// A kind of lock, and the version of Redisson that uses it too.
struct Subject {
  std::string kind;
  std::string redisson;
  ServerForm servers = ServerForm::single;
};
std::ostream& operator<<(std::ostream& out, const Subject& subject);
/// `plain_redisson_4_7_0`, for the names of tests.
std::string subjectName(const ::testing::TestParamInfo<Subject>& info);

/// The versions the tests run against.
inline const std::string kNewest = RLOCK_INTEROP_REDISSON;
inline const std::string kOld = RLOCK_INTEROP_REDISSON_OLD;

/// All of these kinds with the newest version.
std::vector<Subject> newest(const std::vector<std::string>& kinds);

/// What one side lets go and the other waits for.
struct HandOff {
  std::function<void()> hold;
  std::function<Call()> wait;
  std::function<Answer()> release;
  std::function<void(const Answer&)> leave;  ///< told what the waiter got
};

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

  /// Checks what a lock is for. If it does not hold, the test has failed for good: trying again,
  /// which helps against a machine that stands still, does not make it pass.
  void promised(bool kept, const std::string& what);

  /// The process of this side, started when first asked for.
  [[nodiscard]] Peer& peer(Side side);
  /// Another one, of which the test takes care.
  [[nodiscard]] std::unique_ptr<Peer> newPeer(Side side) const;
  /// Opens client 1 of both sides.
  void openBoth(const Peer::Tuning& tuning);

  /// How often a section of one side followed one of the other in a journal.
  [[nodiscard]] static int changesOfSide(const std::string& journal);

  /// From the request that releases to the waiter's entry, in 99 of 100 rounds at most.
  std::chrono::microseconds handOffP99(Peer& waiting, const HandOff& steps);

  /// Does what makes an object of this kind usable as a lock, such as giving a semaphore its
  /// permit.
  void prepare(const std::string& kind, const std::string& name);

 private:
  void startServers(ServerForm form);
  void writeRow(const std::string& result) const;

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
  /// The kind that has to wait for a holder of this one: readers share.
  [[nodiscard]] std::string rival() const { return kind() == "read" ? "write" : kind(); }
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
