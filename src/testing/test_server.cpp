// SPDX-License-Identifier: Apache-2.0

// TestClock and TestServer, the public face of the double: they put the model of the server, the
// loops of its clients and the Timekeeper of a test together. The work is done in those.
#include "testing/memory_server.hpp"
#include "testing/memory_subscriptions.hpp"
#include "testing/memory_transport.hpp"
#include "testing/test_loop.hpp"
#include "testing/timekeeper.hpp"
#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/executor/naming.hpp>
#include <rlock/detail/objects/client_world.hpp>
#include <rlock/error.hpp>
#include <rlock/testing.hpp>

#include <atomic>
#include <utility>

namespace rlock {

namespace {

[[noreturn]] void refuse(const char* what) {
  throw Error(Errc::invalidArgument, what);
}

/// Servers of one process have different names, so that several of them can make a redLock().
std::string nextServerName() {
  static std::atomic<int> last{0};
  return "test-server-" + std::to_string(++last) + ":6379";
}

}  // namespace

// The clock.

TestClock::TestClock(TestTime time)
    : time_(std::make_shared<sim::Timekeeper>(time == TestTime::real)) {}

std::chrono::steady_clock::time_point TestClock::now() const noexcept {
  return time_->now();
}

void TestClock::advance(Duration span) {
  if (!span.valid() || span.isInfinite()) {
    refuse("a clock cannot be advanced without end");
  }
  time_->advance(span.nanoseconds());
}

void TestClock::awaitWaiting(std::size_t calls) {
  time_->awaitSleepers(calls);
}

// The server.

/// A server in memory, its clock, and a client that makes what other clients would do.
///
/// Invariants: each client has a part in the server and in its clock, so that both outlive the
/// TestServer as long as one is there. The other client is made when it is first needed, once,
/// whoever asks, and stays until the TestServer goes: its locks are those of somebody else, so that
/// a test can have them taken and released.
///
/// TestServer passes its calls on, from the threads of the test and from callbacks on the clients'
/// loop threads. connect() refuses options that a server in memory cannot serve before it has
/// started anything; each client that it returns has a loop and a thread of its own.
///
/// **Thread safety:** Safe to call concurrently from any thread. The mutex guards the other client
/// alone: the server and the clock have their own.
class TestServer::Impl {
 public:
  explicit Impl(TestClock time)
      : clock(std::move(time)),
        server(std::make_shared<sim::MemoryServer>(this->clock.time_, nextServerName())) {}

  Client connect(Options options);
  Client& other();
  [[nodiscard]] sim::MemoryServer::TimePoint after(Duration span) const {
    return span.deadlineFrom(clock.now());
  }

  TestClock clock;
  const std::shared_ptr<sim::MemoryServer> server;

 private:
  detail::AnnotatedMutex mutex_;
  std::optional<Client> other_ RLOCK_GUARDED_BY(mutex_);
};

Client TestServer::Impl::connect(Options options) {
  if (options.topology != Topology::single || options.loop != nullptr) {
    refuse("a test server is a single server, and its clients have loops of their own");
  }
  if (options.sync != SyncPolicy()) {
    refuse("a test server has no replicas to acknowledge anything");
  }
  if (options.database >= static_cast<int>(sim::RedisModel::kDatabases)) {
    refuse("a test server has the databases 0 to 15");
  }
  options.endpoints.assign(1, Endpoint{"test-server", 6379});
  options.validate();
  const auto log = std::make_shared<const detail::Logger>(options.log, options.logLevel);
  const std::shared_ptr<detail::Env> env =
      std::make_shared<sim::TestEnv>(sim::TestLoop::start(clock.time_, log));
  detail::net::Transports transports;
  transports.commands = [env, here = server, options](detail::net::LinkEvents& events) {
    return std::make_shared<sim::MemoryTransport>(env, here, options, events);
  };
  transports.subscriptions = [env, here = server, options](detail::net::PubSubEvents& events) {
    return std::make_unique<sim::MemorySubscriptions>(env, here, options, events);
  };
  return detail::connectIn({env, transports, true}, options, log);
}

Client& TestServer::Impl::other() {
  const detail::MutexLock lock(mutex_);
  if (!other_) {
    other_.emplace(connect({}));
  }
  return *other_;
}

TestServer::TestServer() : TestServer(TestClock()) {}

TestServer::TestServer(TestClock clock) : impl_(std::make_unique<Impl>(std::move(clock))) {}

TestServer::~TestServer() = default;

TestClock& TestServer::clock() noexcept {
  return impl_->clock;
}

Client TestServer::connect(Options options) {
  return impl_->connect(std::move(options));
}

Lease TestServer::otherHolds(std::string_view name, std::optional<Duration> lease) {
  AcquireOptions terms;
  terms.lease = lease;
  auto hold = impl_->other().getLock(name).tryAcquire(terms);
  if (!hold) {
    ErrorContext context;
    context.key = name;
    throw Error(Errc::timedOut,
                "somebody holds it already, so another client cannot have it",
                std::move(context));
  }
  return *std::move(hold);
}

bool TestServer::lose(std::string_view name) {
  return impl_->server->lose({name, detail::suffixed(name, "timeout")});
}

void TestServer::dropReplies(int count) {
  impl_->server->order(sim::MemoryServer::Fault::replyLost, count);
}

void TestServer::dropRequests(int count) {
  impl_->server->order(sim::MemoryServer::Fault::requestLost, count);
}

void TestServer::dropMessages(int count) {
  impl_->server->order(sim::MemoryServer::Fault::messageLost, count);
}

void TestServer::down(Duration span) {
  impl_->server->down(impl_->after(span));
}

void TestServer::up() {
  impl_->server->down(sim::MemoryServer::TimePoint::min());
}

void TestServer::freeze(Duration span) {
  impl_->server->freeze(impl_->after(span));
}

void TestServer::restart() {
  impl_->server->restart(true);
}

void TestServer::restartEmpty() {
  impl_->server->restart(false);
}

void TestServer::setOutOfMemory(bool outOfMemory) {
  impl_->server->setOutOfMemory(outOfMemory);
}

void TestServer::setReadOnly(bool readOnly) {
  impl_->server->setReadOnly(readOnly);
}

std::string TestServer::dump() const {
  return impl_->server->dump();
}

std::uint64_t TestServer::commandCount() const {
  return impl_->server->commandCount();
}

std::size_t TestServer::connectionCount() const {
  return impl_->server->connectionCount();
}

}  // namespace rlock
