// SPDX-License-Identifier: Apache-2.0
#include "simulation/lock_kinds.hpp"

#include <rlock/multi_lock.hpp>

#include <cstdlib>
#include <utility>

namespace rlock::sim {

std::vector<std::size_t> LockKind::nodesOf(std::size_t lock) const {
  if (where_) {
    return {where_(lock)};
  }
  if (family_ == Family::red) {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < nodes_; ++i) {
      all.push_back(i);
    }
    return all;
  }
  return {lock % nodes_};
}

std::vector<Handle> LockKind::handles(Peer& peer) const {
  std::vector<Handle> result;
  for (std::size_t i = 0; i < locks_; ++i) {
    const std::string name = nameOf(i);
    Client& client = peer.client(where_ ? 0 : nodesOf(i).front());
    switch (family_) {
      case Family::plain:
        result.push_back({client.getLock(name), {i}});
        result.push_back({client.getLock(name), {i}});
        result.push_back(
            {client.getSpinLock(name, BackOff::exponential(milliseconds(1), milliseconds(16))),
             {i},
             false,
             true});
        result.push_back({client.getNonReentrantLock(name), {i}, false, false, false});
        break;
      case Family::fair:
        result.push_back({client.getFairLock(name), {i}});
        result.push_back({client.getNonReentrantFairLock(name), {i}, false, false, false});
        break;
      case Family::simple:
        result.push_back({client.getSimpleLock(name), {i}, false, false, false});
        break;
      case Family::fenced:
        result.push_back({client.getFencedLock(name), {i}});
        break;
      case Family::readWrite: {
        const ReadWriteLock lock = client.getReadWriteLock(name);
        result.push_back({lock.readLock(), {i}, true});
        result.push_back({lock.readLock(), {i}, true});
        result.push_back({lock.writeLock(), {i}});
        break;
      }
      case Family::multi:
        result.push_back({client.getLock(name), {i}});
        if (i > 0) {
          const RLock before =
              peer.client(where_ ? 0 : nodesOf(i - 1).front()).getLock(nameOf(i - 1));
          result.push_back({multiLock({client.getLock(name), before}), {i, i - 1}});
        }
        break;
      case Family::red: {
        std::vector<RLock> members;
        for (const std::size_t node : nodesOf(i)) {
          members.push_back(peer.client(node).getLock(name));
        }
        result.push_back({redLock(std::move(members)), {i}});
        break;
      }
    }
  }
  return result;
}

bool LockKind::held(const std::vector<std::unique_ptr<Node>>& nodes,
                    std::size_t lock,
                    const std::string& field,
                    bool shared) const {
  const std::string name = nameOf(lock);
  std::size_t count = 0;
  const auto where = nodesOf(lock);
  for (const std::size_t node : where) {
    bool has = false;
    if (family_ == Family::simple) {
      has = nodes[node]->look({"GET", name}).is(field);
    } else if (family_ == Family::readWrite && !shared) {
      has = nodes[node]->look({"HEXISTS", name, field + ":write"}).integer == 1;
    } else {
      has = nodes[node]->look({"HEXISTS", name, field}).integer == 1;
    }
    count += has ? 1 : 0;
  }
  return count >= where.size() / 2 + 1;
}

bool LockKind::free(const std::vector<std::unique_ptr<Node>>& nodes,
                    std::size_t lock,
                    std::size_t node) const {
  return nodes[node]->look({"EXISTS", nameOf(lock)}).integer == 0;
}

int LockKind::countOf(const std::vector<std::unique_ptr<Node>>& nodes,
                      std::size_t lock,
                      const std::string& field) const {
  const detail::Reply count = nodes[nodesOf(lock).front()]->look({"HGET", nameOf(lock), field});
  return count.isNil() ? 0 : std::atoi(count.text.c_str());
}

}  // namespace rlock::sim
