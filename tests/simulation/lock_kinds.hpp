// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulation/sim_network.hpp"
#include "simulation/sim_peer.hpp"
#include <rlock/lock.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rlock::sim {

enum class Family : std::uint8_t { plain, fair, simple, fenced, readWrite, multi, red };

/// One way to take one lock or several. All handles that cover a lock exclude each other, unless
/// both share it.
struct Handle {
  RLock lock;
  std::vector<std::size_t> covers;  ///< numbers of locks
  bool shared = false;
  bool polls = false;  ///< its waiters hear nothing
  bool reentrant = true;
};

/// How the locks of one family are made, and how a hold of theirs looks on a server.
class LockKind {
 public:
  /// @param where  the server that has a lock, if that is not for ever
  LockKind(Family family,
           std::size_t locks,
           std::size_t nodes,
           std::function<std::size_t(std::size_t lock)> where = nullptr)
      : family_(family), locks_(locks), nodes_(nodes), where_(std::move(where)) {}

  [[nodiscard]] Family family() const noexcept { return family_; }
  [[nodiscard]] std::size_t locks() const noexcept { return locks_; }
  [[nodiscard]] static std::string nameOf(std::size_t lock) {
    return "lock" + std::to_string(lock);
  }
  /// The servers that have a lock.
  [[nodiscard]] std::vector<std::size_t> nodesOf(std::size_t lock) const;
  [[nodiscard]] std::vector<Handle> handles(Peer& peer) const;
  /// Whether so many servers as it takes have a hold of this owner.
  [[nodiscard]] bool held(const std::vector<std::unique_ptr<Node>>& nodes,
                          std::size_t lock,
                          const std::string& field,
                          bool shared) const;
  /// Whether nobody holds the lock on one of its servers.
  [[nodiscard]] bool free(const std::vector<std::unique_ptr<Node>>& nodes,
                          std::size_t lock,
                          std::size_t node) const;
  /// How many holds of an owner the server counts; only where one key counts them.
  [[nodiscard]] bool counts() const noexcept {
    return family_ == Family::plain || family_ == Family::fair || family_ == Family::fenced;
  }
  [[nodiscard]] int countOf(const std::vector<std::unique_ptr<Node>>& nodes,
                            std::size_t lock,
                            const std::string& field) const;

 private:
  const Family family_;
  const std::size_t locks_;
  const std::size_t nodes_;
  const std::function<std::size_t(std::size_t lock)> where_;
};

}  // namespace rlock::sim
