// SPDX-License-Identifier: Apache-2.0
// A cluster of masters on this machine, of which one can be made to stand still.
#pragma once

#include "server.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace rlock::bench {

/// Masters without replicas on loopback ports that share the slots evenly. The constructor returns
/// when each of them sees the whole cluster work, which takes two seconds: so long a master refuses
/// to write after its start. None is declared dead within a minute.
class ClusterServers {
 public:
  static constexpr std::size_t kMasters = 3;

  /// @param program  a redis-server of 7.0 or later
  explicit ClusterServers(const std::string& program);

  [[nodiscard]] std::string uri() const;
  [[nodiscard]] pid_t pid(std::size_t master) const { return nodes_[master]->pid(); }
  [[nodiscard]] std::vector<pid_t> pids() const;
  /// Which master has a key.
  [[nodiscard]] static std::size_t masterOf(std::string_view key);

 private:
  std::array<std::unique_ptr<OwnServer>, kMasters> nodes_;
};

/// A process stands still while this exists: its connections stay open, and it answers nothing.
class Frozen {
 public:
  explicit Frozen(pid_t process);
  Frozen(const Frozen&) = delete;
  Frozen& operator=(const Frozen&) = delete;
  ~Frozen();

 private:
  const pid_t process_;
};

}  // namespace rlock::bench
