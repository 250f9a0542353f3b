// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interop/peer.hpp"
#include "support/eventually.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_cluster.hpp"
#include "support/redis_sentinels.hpp"
#include "support/redis_server.hpp"
#include "support/temp_dir.hpp"
#include "support/unprotected_counter.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::test::interop {

using namespace std::chrono_literals;

/// The servers that both sides connect to. A further form is one more case in
/// InteropTest::startServers(); the processes of both sides go by the scheme of the URI.
enum class ServerForm {
  single,
  sentinel,  ///< a master, a replica, three Sentinels
  cluster,   ///< three masters with a replica each
  /// The same; nobody may ask whether it has sharded channels, so that all clients use the others.
  classicCluster,
};
/// "one server", "Sentinel", "cluster" or "classic cluster".
const char* toString(ServerForm form);

/// A kind of lock, and the version of Redisson that uses it too.
struct Subject {
  std::string kind;
  std::string redisson;
  ServerForm servers = ServerForm::single;
};
std::ostream& operator<<(std::ostream& out, const Subject& subject);
/// `plain_redisson_4_7_0` or `plain_redisson_4_7_0_cluster`, for the names of tests.
std::string subjectName(const ::testing::TestParamInfo<Subject>& info);

/// The versions the tests run against.
inline const std::string kNewest = RLOCK_INTEROP_REDISSON;
inline const std::string kOld = RLOCK_INTEROP_REDISSON_OLD;

/// All of these kinds with the newest version.
std::vector<Subject> newest(const std::vector<std::string>& kinds);

/// The steps of a hand-off: one side holds and lets go, the other waits for that and leaves.
struct HandOff {
  std::function<void()> hold;
  std::function<Call()> wait;
  std::function<Answer()> release;
  std::function<void(const Answer&)> leave;  ///< told what the waiter got
};

/// Such as "1.3 ms".
std::string inMs(std::chrono::microseconds time);

/// The servers, a Redisson process and an rlock process. The result of each test is also written to
/// a file, from which write_matrix.sh makes the table of docs/redisson.md.
class InteropTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// The URI of the servers, for all processes.
  [[nodiscard]] const std::string& uri() const { return uri_; }
  ///@{
  /// Of the form that the test has.
  [[nodiscard]] const RedisServer& server() const { return *server_; }
  [[nodiscard]] RedisSentinels& sentinels() { return *sentinels_; }
  [[nodiscard]] RedisCluster& cluster() { return *cluster_; }
  ///@}
  /// To the first masters.
  [[nodiscard]] RawRedis& raw() { return *raw_; }
  /// To these masters of the cluster.
  [[nodiscard]] RawRedis rawTo(std::initializer_list<std::size_t> masters);
  [[nodiscard]] const TempDir& files() const { return files_; }

  /// Which row and column of the table this is; the first line of a test. Skips, or fails, when
  /// that version cannot be had.
  void begin(std::string_view testCase, const Subject& subject);
  /// A remark that stands in the table beside the result.
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

  /// Begins sections of one owner around what nothing but the object protects: the same number in a
  /// file for all that the test begins.
  [[nodiscard]] Call startSections(Side side,
                                   int owner,
                                   std::string_view kind,
                                   std::string_view name,
                                   int times,
                                   std::chrono::microseconds each);
  /// Checks that no update was lost and no sections overlapped that must not. Returns how often a
  /// section of one side followed one of the other.
  int checkSections(int updates, int sections);

  /// From the request that releases to the waiter's entry, in 99 of 100 rounds at most.
  std::chrono::microseconds handOffP99(Peer& waiting, const HandOff& steps);
  /// The same of each round, sorted. Fewer than `rounds` after one that failed, or took longer than
  /// the limit.
  std::vector<std::chrono::microseconds> handOffs(
      Peer& waiting,
      const HandOff& steps,
      std::size_t rounds,
      std::chrono::microseconds limit = std::chrono::microseconds::max());

  /// Does what makes an object of this kind usable as a lock, such as giving a semaphore its
  /// permit.
  void prepare(const std::string& kind, const std::string& name);
  ///@{
  /// The verbs that take and give back an object of a kind.
  static Call startAcquire(Peer& peer, int owner, const std::string& kind, const std::string& name);
  static Answer release(Peer& peer,
                        int owner,
                        const std::string& kind,
                        const std::string& name,
                        const Answer& acquired);
  ///@}

 private:
  void startServers(ServerForm form);
  void writeRow(const std::string& result) const;

  std::unique_ptr<RedisServer> server_;
  std::unique_ptr<RedisSentinels> sentinels_;
  std::unique_ptr<RedisCluster> cluster_;
  std::string uri_;
  std::unique_ptr<RawRedis> raw_;
  TempDir files_;
  std::optional<UnprotectedCounter> counter_;
  std::optional<OverlapDetector> journal_;
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
  using InteropTest::release;
  using InteropTest::startAcquire;
  ///@{
  /// Of this kind.
  [[nodiscard]] Call startAcquire(Peer& peer, int owner, const std::string& name) const;
  Answer release(Peer& peer, int owner, const std::string& name, const Answer& acquired) const;
  ///@}
};

/// The answer has no error.
#define ASSERT_ANSWER(expression)                                    \
  do {                                                               \
    const ::rlock::test::interop::Answer asked = (expression);       \
    ASSERT_TRUE(asked.ok()) << #expression << " answered " << asked; \
  } while (false)

}  // namespace rlock::test::interop
