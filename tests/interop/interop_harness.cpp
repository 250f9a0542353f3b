// SPDX-License-Identifier: Apache-2.0
#include "interop/interop_harness.hpp"

#include "support/child_process.hpp"
#include <rlock/version.hpp>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

namespace rlock::test::interop {

namespace {

bool isSemaphore(const std::string& kind) {
  return kind == "semaphore" || kind == "permits";
}

/// "ready", or what build_java.sh says else.
std::string buildJava(const std::string& redisson) {
  ChildProcess build(RLOCK_INTEROP_SOURCE_DIR "/build_java.sh", {redisson, RLOCK_INTEROP_JAVA_DIR});
  std::string last = "build_java.sh said nothing";
  while (auto line = build.readLine(10min)) {
    last = *line;
  }
  const auto status = build.wait(10s);
  if (!status || !status->success()) {
    return "build_java.sh failed: " + last;
  }
  return last;
}

namespace fs = std::filesystem;

/// Where it says that the running test has broken a promise before.
fs::path brokenPromise() {
  const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
  return fs::path(RLOCK_INTEROP_RESULT_DIR) / "broken" /
         (std::string(test.test_suite_name()) + "." + test.name());
}

void writeLine(const fs::path& path, const std::string& line) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << line << '\n';
}

/// Tells write_matrix.sh what has run, so that no table passes for complete that is not.
class TestRecorder : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo& test) override {
    const ::testing::TestResult& result = *test.result();
    writeLine(fs::path(RLOCK_INTEROP_RESULT_DIR) / "tests" /
                  (std::string(test.test_suite_name()) + "." + test.name()),
              result.Passed()    ? "passed"
              : result.Skipped() ? "skipped"
                                 : "failed");
  }
};

[[maybe_unused]] const bool recorded = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new TestRecorder);
  return true;
}();

bool interopRequired() {
  const char* required = std::getenv("RLOCK_TEST_REQUIRE_INTEROP");
  return required != nullptr && std::string(required) == "1";
}

}  // namespace

const char* toString(ServerForm form) {
  switch (form) {
    case ServerForm::single:
      return "one server";
    case ServerForm::sentinel:
      return "Sentinel";
    case ServerForm::cluster:
      return "cluster";
    case ServerForm::classicCluster:
      return "classic cluster";
  }
  return "?";
}

std::ostream& operator<<(std::ostream& out, const Subject& subject) {
  return out << subject.kind << " with Redisson " << subject.redisson << ", "
             << toString(subject.servers);
}

std::string subjectName(const ::testing::TestParamInfo<Subject>& info) {
  std::string name = info.param.kind + "_redisson_" + info.param.redisson;
  if (info.param.servers != ServerForm::single) {
    name.append("_").append(toString(info.param.servers));
  }
  std::replace_if(
      name.begin(), name.end(), [](char each) { return !std::isalnum(each); }, '_');
  return name;
}

std::vector<Subject> newest(const std::vector<std::string>& kinds) {
  std::vector<Subject> subjects;
  for (const std::string& kind : kinds) {
    subjects.push_back(Subject{kind, kNewest});
  }
  return subjects;
}

std::string inMs(std::chrono::microseconds time) {
  char text[32];
  std::snprintf(text,
                sizeof text,
                time < 100ms ? "%.1f ms" : "%.0f ms",
                static_cast<double>(time.count()) / 1000);
  return text;
}

void InteropTest::SetUp() {
  RLOCK_REQUIRE_REDIS_SERVER();
}

void InteropTest::startServers(ServerForm form) {
  switch (form) {
    case ServerForm::single:
      server_ = std::make_unique<RedisServer>();
      uri_ = server_->uri();
      raw_ = std::make_unique<RawRedis>(*server_);
      return;
    case ServerForm::sentinel:
      sentinels_ = std::make_unique<RedisSentinels>();
      uri_ = sentinels_->uri();
      raw_ = std::make_unique<RawRedis>(sentinels_->node(0));
      return;
    case ServerForm::cluster:
    case ServerForm::classicCluster: {
      RedisClusterOptions options;
      options.replicasEach = 1;
      cluster_ = std::make_unique<RedisCluster>(options);
      uri_ = cluster_->uri(options.masters);
      raw_ = std::make_unique<RawRedis>(rawTo({0, 1, 2}));
      if (form == ServerForm::classicCluster) {
        for (std::size_t i = 0; i < cluster_->size(); ++i) {
          cluster_->raw(i).run({"ACL", "SETUSER", "default", "-pubsub|shardnumsub"});
        }
      }
      return;
    }
  }
}

void InteropTest::TearDown() {
  if (case_.empty()) {
    return;
  }
  writeRow(HasFailure() ? "FAILED" : IsSkipped() ? "skipped" : "passed");
}

void InteropTest::promised(bool kept, const std::string& what) {
  if (!kept) {
    ADD_FAILURE() << what;
    writeLine(brokenPromise(), what);
  }
}

Call InteropTest::startSections(Side side,
                                int owner,
                                std::string_view kind,
                                std::string_view name,
                                int times,
                                std::chrono::microseconds each) {
  if (!counter_) {
    counter_.emplace(files_.file("counter"));
    journal_.emplace(files_.file("journal"));
  }
  return peer(side).start(1,
                          owner,
                          "hammer",
                          kind,
                          name,
                          {std::to_string(times),
                           files_.file("counter"),
                           files_.file("journal"),
                           toString(side) + std::to_string(owner),
                           std::to_string(each.count())});
}

int InteropTest::checkSections(int updates, int sections) {
  promised(counter_->value() == updates,
           "of " + std::to_string(updates) + " updates " + std::to_string(counter_->value()));
  const OverlapDetector::Result result = journal_->verify();
  EXPECT_EQ(result.sections, static_cast<std::size_t>(sections));
  promised(result.ok(), result.describe());
  std::ifstream file(files_.file("journal"));
  char kind = '\0';
  std::string tag;
  std::int64_t time = 0;
  char last = '\0';
  int changes = 0;
  while (file >> kind >> tag >> time) {
    changes += kind != 'L' && last != '\0' && tag.front() != last ? 1 : 0;
    last = tag.front();
  }
  return changes;
}

void InteropTest::writeRow(const std::string& result) const {
  writeLine(fs::path(RLOCK_INTEROP_RESULT_DIR) / "rows" / subject_.redisson / case_ / subject_.kind,
            result + '\t' + note_);
}

void InteropTest::begin(std::string_view testCase, const Subject& subject) {
  subject_ = subject;
  case_ = testCase;
  // Stays if the process dies.
  writeRow("FAILED");
  if (fs::exists(brokenPromise())) {
    FAIL() << "an attempt before this one broke a promise; see " << brokenPromise();
  }
  const std::string built = buildJava(subject.redisson);
  if (built != "ready") {
    if (interopRequired() || !built.starts_with("unavailable")) {
      FAIL() << built;
    }
    GTEST_SKIP() << built;
  }
  startServers(subject.servers);
  writeLine(
      fs::path(RLOCK_INTEROP_RESULT_DIR) / "about",
      "rlock " RLOCK_VERSION_STRING " and Redis " + raw_->info("redis_version").value_or("?"));
}

RawRedis InteropTest::rawTo(std::initializer_list<std::size_t> masters) {
  RawRedisOptions options = rawOptionsFor(cluster_->node(*masters.begin()));
  for (const std::size_t each : masters) {
    options.clusterPorts.push_back(cluster_->node(each).port());
  }
  return RawRedis(options);
}

std::unique_ptr<Peer> InteropTest::newPeer(Side side) const {
  return std::make_unique<Peer>(side, subject_.redisson);
}

Peer& InteropTest::peer(Side side) {
  auto& peer = peers_[side == Side::java ? 0 : 1];
  if (!peer) {
    peer = newPeer(side);
  }
  return *peer;
}

void InteropTest::openBoth(const Peer::Tuning& tuning) {
  for (const Side side : kSides) {
    peer(side).open(1, uri(), tuning);
  }
}

std::chrono::microseconds InteropTest::handOffP99(Peer& waiting, const HandOff& steps) {
  constexpr std::size_t kRounds = 200;
  const std::vector<std::chrono::microseconds> times = handOffs(waiting, steps, kRounds);
  return times.size() < kRounds ? std::chrono::microseconds::max() : times[kRounds * 99 / 100 - 1];
}

std::vector<std::chrono::microseconds> InteropTest::handOffs(Peer& waiting,
                                                             const HandOff& steps,
                                                             std::size_t rounds,
                                                             std::chrono::microseconds limit) {
  std::vector<std::chrono::microseconds> times;
  while (times.size() < rounds && !HasFailure()) {
    steps.hold();
    const Call wait = steps.wait();
    // Redisson's READ_UNLOCK wakes only threads that sleep already: the waiter is refused,
    // subscribes, and is given the time to fall asleep. Some kinds do not subscribe.
    static_cast<void>(eventually(100ms, [this] { return !raw_->pubsubChannels("*").empty(); }));
    std::this_thread::sleep_for(15ms);
    EXPECT_FALSE(waiting.finished(wait));
    const Answer released = steps.release();
    EXPECT_TRUE(released.ok()) << released;
    const Answer entered = waiting.finish(wait);
    EXPECT_TRUE(entered.ok()) << entered;
    const auto time =
        std::chrono::duration_cast<std::chrono::microseconds>(entered.end - released.begin);
    EXPECT_LT(time, limit);
    steps.leave(entered);
    if (!HasFailure()) {
      times.push_back(time);
    }
  }
  std::sort(times.begin(), times.end());
  return times;
}

void InteropTest::prepare(const std::string& kind, const std::string& name) {
  if (isSemaphore(kind)) {
    ASSERT_ANSWER(peer(Side::java).ask(1, 0, "trySet", kind, name, {"1"}));
  }
}

Call InteropTest::startAcquire(Peer& peer,
                               int owner,
                               const std::string& kind,
                               const std::string& name) {
  if (kind == "semaphore") {
    return peer.start(1, owner, "acquire", kind, name, {"1"});
  }
  return peer.start(1, owner, kind == "permits" ? "acquire" : "lock", kind, name, {"-1"});
}

Answer InteropTest::release(Peer& peer,
                            int owner,
                            const std::string& kind,
                            const std::string& name,
                            const Answer& acquired) {
  if (kind == "semaphore") {
    return peer.ask(1, owner, "release", kind, name, {"1"});
  }
  if (kind == "permits") {
    return peer.ask(1, owner, "release", kind, name, {acquired.value});
  }
  return peer.ask(1, owner, "unlock", kind, name);
}

std::string SubjectTest::objectName() const {
  return kind() == "multi" || kind() == "red" ? "one,two,three" : "object";
}

Call SubjectTest::startAcquire(Peer& peer, int owner, const std::string& name) const {
  return InteropTest::startAcquire(peer, owner, kind(), name);
}

Answer SubjectTest::release(Peer& peer,
                            int owner,
                            const std::string& name,
                            const Answer& acquired) const {
  return InteropTest::release(peer, owner, kind(), name, acquired);
}

}  // namespace rlock::test::interop
