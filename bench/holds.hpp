// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/rlock.hpp>

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

namespace rlock::bench {

/// Does one asynchronous thing for each number from `from` to below `to`, a limited number of them
/// at a time, and waits for all. Returns how many failed.
std::size_t forEach(std::size_t from,
                    std::size_t to,
                    const std::function<Operation<void>(std::size_t)>& operation);

/// Many locks that one client holds by its watchdog, all of one owner. They are taken by the
/// constructor and given back by the destructor.
class Holds {
 public:
  Holds(Client& client, std::size_t count, std::string_view prefix);
  Holds(const Holds&) = delete;
  Holds& operator=(const Holds&) = delete;
  ~Holds();

  [[nodiscard]] const std::vector<RLock>& locks() const { return locks_; }
  /// The part that each has taken of this process' memory, its lock included.
  [[nodiscard]] double bytesPerHold() const { return bytesPerHold_; }

 private:
  const OwnerId owner_ = newOwner();
  std::vector<RLock> locks_;
  double bytesPerHold_ = 0;
};

}  // namespace rlock::bench
