// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/rlock.hpp>

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

namespace rlock::bench {

/// Many locks that one client holds by its watchdog, all of one owner. They are taken by the
/// constructor and given back by the destructor.
class Holds {
 public:
  Holds(Client& client, std::size_t count, std::string_view prefix);
  Holds(const Holds&) = delete;
  Holds& operator=(const Holds&) = delete;
  ~Holds();

  /// What each has taken of this process' memory, its lock included.
  [[nodiscard]] double bytesPerHold() const { return bytesPerHold_; }

 private:
  /// Does one asynchronous thing for each lock, a limited number at a time. Returns how many
  /// failed.
  std::size_t forEach(const std::function<Operation<void>(RLock&)>& operation);

  const OwnerId owner_ = newOwner();
  std::vector<RLock> locks_;
  double bytesPerHold_ = 0;
};

}  // namespace rlock::bench
