// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "testing/redis_model.hpp"
#include "testing/timekeeper.hpp"
#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/net/server_session.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::sim {

/// The client's end of a connection to a MemoryServer. Called on any thread, with no mutex of the
/// server held.
class MemoryPeer {
 public:
  /// Of a connection. None is used twice, unlike the server's own ids, which begin again when it
  /// restarts.
  using Number = std::uint64_t;

  MemoryPeer() = default;
  MemoryPeer(const MemoryPeer&) = delete;
  MemoryPeer& operator=(const MemoryPeer&) = delete;
  virtual ~MemoryPeer() = default;

  /// The server has closed it.
  virtual void broken(Number connection) = 0;
  /// The server answers again, sooner than it was to.
  virtual void thawed() = 0;
  virtual void heard(const std::string& /*channel*/, const std::string& /*payload*/) {}
};

/// A Redis in this process for clients on real threads: the model behind a mutex, connections
/// without sockets, and what can be made to go wrong with them.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class MemoryServer {
 public:
  using Number = MemoryPeer::Number;
  using Argv = RedisModel::Argv;
  using TimePoint = Timekeeper::TimePoint;
  /// The outcome of a command.
  enum class Fate : std::uint8_t {
    answered,
    lost,  ///< its connection is gone, before it was executed or after
  };
  /// The faults that may be ordered a number of times.
  enum class Fault : std::uint8_t {
    replyLost,    ///< a script is executed, and its connection breaks before the reply
    requestLost,  ///< the connection breaks before the script is executed
    messageLost,  ///< a message does not reach its subscriber
  };

  MemoryServer(std::shared_ptr<Timekeeper> time, std::string name);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] Timekeeper& time() const noexcept { return *time_; }

  // Connections.

  struct Accepted {
    Number number;
    detail::net::ServerSession session;
  };
  /// Empty: it is down.
  /// @param database  less than RedisModel::kDatabases
  std::optional<Accepted> connect(std::weak_ptr<MemoryPeer> peer, int database = 0);
  void disconnect(Number connection) noexcept;
  Fate execute(Number connection, Argv argv, detail::Reply& reply);
  /// Until when it answers nothing.
  [[nodiscard]] TimePoint frozenUntil() const;

  // A look from outside, whatever is broken.

  /// Every database forgets these keys. Returns whether there was one of them.
  bool lose(std::initializer_list<std::string_view> keys);
  /// The keys of database 0, and then those of each other that has any, below its number.
  [[nodiscard]] std::string dump() const;
  [[nodiscard]] std::uint64_t commandCount() const;
  [[nodiscard]] std::size_t connectionCount() const;

  // Faults to order.

  void order(Fault fault, int times);
  /// All connections break, and there is no other until then.
  void down(TimePoint until);
  /// Answers nothing until then; an earlier order no longer counts.
  void freeze(TimePoint until);
  /// All connections break; the process in its place is not frozen.
  void restart(bool keepData);
  void setOutOfMemory(bool outOfMemory);
  void setReadOnly(bool readOnly);

 private:
  struct Message {
    std::shared_ptr<MemoryPeer> to;
    std::string channel;
    std::string payload;
  };
  struct Connection {
    std::weak_ptr<MemoryPeer> peer;
    RedisModel::ClientId client;
  };
  using Connections = std::map<Number, Connection>;
  /// The news that are told when the mutex is free.
  struct News {
    std::vector<Message> messages{};
    Connections broken{};
    Connections thawed{};
  };

  [[nodiscard]] bool happens(Fault fault) noexcept RLOCK_REQUIRES(mutex_);
  [[nodiscard]] Connections::iterator find(RedisModel::ClientId client) noexcept
      RLOCK_REQUIRES(mutex_);
  void forget(Connections::iterator connection) RLOCK_REQUIRES(mutex_);
  // The model's hooks, which it calls within a request, so under the mutex. The analysis cannot see
  // that.
  void noteMessage(RedisModel::ClientId subscriber,
                   std::string_view channel,
                   std::string_view payload) RLOCK_NO_THREAD_SAFETY_ANALYSIS;
  void noteKill(RedisModel::ClientId client) RLOCK_NO_THREAD_SAFETY_ANALYSIS;
  static void tell(const News& news);

  const std::shared_ptr<Timekeeper> time_;
  const std::string name_;
  mutable detail::AnnotatedMutex mutex_;
  RedisModel model_ RLOCK_GUARDED_BY(mutex_);
  Connections connections_ RLOCK_GUARDED_BY(mutex_);
  Number lastNumber_ RLOCK_GUARDED_BY(mutex_) = 0;
  News news_ RLOCK_GUARDED_BY(mutex_);
  std::map<Fault, int> faults_ RLOCK_GUARDED_BY(mutex_);
  TimePoint downUntil_ RLOCK_GUARDED_BY(mutex_) = TimePoint::min();
  TimePoint frozenUntil_ RLOCK_GUARDED_BY(mutex_) = TimePoint::min();
};

}  // namespace rlock::sim
