// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The test double of rlock, for the tests of services: no socket, no server, no sleeping. Its
/// clients are rlock::Client objects with the library's own engine, watchdog and scripts; what is
/// simulated is the server, which executes the scripts in memory, the network and the time.
/// Link `rlock::testing`. docs/testing-your-service.md shows how.

#include <rlock/client.hpp>
#include <rlock/duration.hpp>
#include <rlock/lease.hpp>
#include <rlock/lock.hpp>
#include <rlock/options.hpp>
#include <rlock/owner.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

namespace rlock {

namespace sim {
class InterfaceBackend;
class Timekeeper;
}  // namespace sim

/// How the time of a test passes.
enum class TestTime {
  /// It stands still until TestClock::advance(), or until a call waits that nobody else could end:
  /// as long as one thread only makes calls, a call that waits takes no time and moves the clock to
  /// the end of its wait.
  manual,
  /// As the system's, and advance() moves it on besides.
  real,
};

/// The time of a test: leases, time limits, pauses and renewals of all clients of the servers that
/// have this clock. A handle: copies are the same clock.
///
/// **Thread safety:** Safe to call concurrently from any thread, but not in a callback of a client.
class TestClock {
 public:
  /// @param time  who moves it
  explicit TestClock(TestTime time = TestTime::manual);

  /// The time that Lease::validUntil() is compared with.
  [[nodiscard]] std::chrono::steady_clock::time_point now() const noexcept;

  /// Moves the time on, from one event to the next, and returns when everything has been done that
  /// falls into it: the watchdog has renewed, leases and waits have ended, callbacks have returned.
  /// It does not wait for what threads of the application do when their calls return.
  /// @param span  zero or less: no time passes, see settle()
  /// @throws Error  `timedOut` when a callback does not return for 10 s of real time,
  ///                `wouldDeadlock` when called in a callback, `invalidArgument` for a span without
  ///                end
  void advance(Duration span);
  /// Returns when the clients have done what is to be done at this time: a message that was
  /// published has woken its waiter, a callback has been called.
  /// @throws Error  as advance()
  void settle() { advance(Duration::zero()); }
  /// Returns when so many calls wait, in other threads, for a lock or for anything else that does
  /// not come by itself. Time does not pass meanwhile.
  /// @throws Error  as advance(); `timedOut` when there are fewer after 10 s of real time
  void awaitWaiting(std::size_t calls = 1);

 private:
  friend class TestServer;

  std::shared_ptr<sim::Timekeeper> time_;
};

/// A Redis server in memory, and what can go wrong with it. Connect the clients of the service
/// under test to it; a client that plays another process is one more connect().
///
/// Supported are all objects of a Client and multiLock() and redLock() over them, with every call.
/// Not supported are clusters, Sentinels, acknowledging replicas (SyncPolicy), access rules, TLS,
/// refreshCredentials() and Options::loop.
///
/// Clients may outlive the server object.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class TestServer {
 public:
  /// A server that is up and empty, with a clock that stands still.
  TestServer();
  /// Several servers of one test share a clock.
  explicit TestServer(TestClock clock);
  /// Closes the client of otherHolds().
  ~TestServer();
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  /// The time that it lives by.
  [[nodiscard]] TestClock& clock() noexcept;

  /// A client of this server, with an id of its own as if it were in a process of its own.
  /// @param options  as for Client::connect(); `endpoints` may be empty and are not looked at
  /// @throws Error  `connectionFailed` while the server is down; `invalidArgument` also for a
  ///                cluster, Sentinels, a SyncPolicy, a loop and a database above 15
  [[nodiscard]] Client connect(Options options = {});

  // Holds.

  ///@{
  /// Has another client hold the lock of that name in database 0, a getLock() of its own, until the
  /// Lease is released or destroyed, or for `lease`. For other kinds, and for other databases,
  /// connect() a further client.
  /// @throws Error  `timedOut` when somebody holds it already: lose() takes it away
  [[nodiscard]] Lease otherHolds(std::string_view name, std::optional<Duration> lease = {});
  ///@}
  /// The server forgets what it has under this name in any database, as after a failover or a DEL:
  /// whoever holds it is not told, and learns of it at the next renewal (after a third of the
  /// lease), at the release or by an answer. The tokens of a fenced lock go on rising.
  /// @param name  the server's name, with Options::namePrefix
  /// @returns false: there was nothing
  bool lose(std::string_view name);

  // The network.

  /// The next so many scripts are executed, and their connections break before the replies. Each
  /// acquisition and each release is a script; what only looks, like RLock::isLocked(), is a
  /// command of another kind and not counted. A later order replaces what is left of an earlier one
  /// of its kind.
  void dropReplies(int count = 1);
  /// The same before they are executed.
  void dropRequests(int count = 1);
  /// The next so many messages do not reach the subscriber that they are for. Waiters look by
  /// themselves after Options::safetyPoll.
  void dropMessages(int count = 1);

  // The server.

  ///@{
  /// Breaks all connections, and there is no other for so long, or until up(). The data is kept,
  /// and leases go on.
  void down(Duration span = Duration::max());
  void up();
  ///@}
  /// Nothing is answered for so long; connections stay. A later order replaces an earlier one:
  /// `freeze(0s)` ends it.
  void freeze(Duration span);
  ///@{
  /// Another process in its place at once, with the data or without. All connections break, and a
  /// freeze() ends.
  void restart();
  void restartEmpty();
  ///@}
  /// Commands that need memory are refused as by `maxmemory`.
  void setOutOfMemory(bool outOfMemory);
  /// Writes are refused as by a replica.
  void setReadOnly(bool readOnly);

  // The server's view.

  /// All keys, one line each with type, expiry and value: for failure messages. The keys of
  /// databases other than 0 stand below a line with its number.
  [[nodiscard]] std::string dump() const;
  /// Commands executed so far, those in scripts included.
  [[nodiscard]] std::uint64_t commandCount() const;
  /// Connections that are open now.
  [[nodiscard]] std::size_t connectionCount() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

/// The functions of a lock, for a test that answers the calls itself: derive from it, and
/// makeLock() makes an RLock of it for code that is given one. Most tests need none of this: the
/// locks of a TestServer's client behave like those of a server.
///
/// An Error that one of its functions throws is the error of the call; any other exception becomes
/// a `serverError`.
///
/// **Thread safety:** it is called from any thread, by several at once.
class LockInterface {
 public:
  /// The terms of an acquisition.
  struct Attempt {
    OwnerId owner{};                  ///< who asks
    Duration wait{};                  ///< zero or less: one attempt; infinite: for ever
    std::optional<Duration> lease{};  ///< empty: until it is released
    std::stop_token stop{};           ///< ends the wait, with `cancelled`
  };

  LockInterface();
  LockInterface(const LockInterface&) = delete;
  LockInterface& operator=(const LockInterface&) = delete;
  virtual ~LockInterface();

  /// Obtains the lock for an owner, which may hold it already.
  /// @returns false: not within the wait
  virtual bool acquire(const Attempt& attempt) = 0;
  /// Gives one hold back.
  /// @returns how many are left to the owner
  /// @throws Error  `notOwner` if it has none
  virtual int release(OwnerId owner) = 0;
  /// How often the owner holds it.
  virtual int holdCount(OwnerId owner) = 0;
  /// Whether anybody holds it.
  virtual bool isLocked() = 0;
  /// Takes it from whoever holds it. @returns false: nobody does
  virtual bool forceRelease() = 0;
  /// As RLock::remainTimeToLive(). Unless overridden: without end while it is locked.
  virtual std::optional<std::chrono::milliseconds> timeToLive();

 protected:
  /// Says that the owner's hold is lost: its Lease does not hold any longer, and its token stops on
  /// this thread.
  void tellLost(OwnerId owner, LossReason reason = LossReason::refused);

 private:
  friend class sim::InterfaceBackend;
  struct Holds;

  const std::shared_ptr<Holds> holds_;
};

/// The RLock over an implementation of one's own. Its asynchronous calls run on threads of their
/// own; an exception that a handler throws there is dropped. As with a server's lock, an acquire()
/// in the name of a new owner by a thread that keeps it is `wouldDeadlock`. It cannot be part of a
/// multiLock() or redLock(). A Lease with a lease of its own ends by the system's clock: it does
/// not hold any longer, its release says `lost`, and its token stops then, not before. One without
/// lasts until it is released, a forceUnlock(), or LockInterface::tellLost().
/// @throws Error  `invalidArgument` for no implementation or no name
[[nodiscard]] RLock makeLock(std::string name, std::shared_ptr<LockInterface> lock);

}  // namespace rlock
