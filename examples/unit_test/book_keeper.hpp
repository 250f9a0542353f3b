// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/rlock.hpp>

#include <functional>
#include <optional>
#include <string>

/// A service: closes the books of a day, step by step, on whichever machine comes first. It is
/// given its Client, so that a test can give it one of a server in memory.
class BookKeeper {
 public:
  enum class Outcome {
    closed,
    busy,         ///< another machine is at it
    interrupted,  ///< the lock was lost on the way: another machine may have begun
  };

  explicit BookKeeper(rlock::Client& client) : client_(client) {}

  /// @param step  does the next part; false: there is none
  Outcome close(const std::string& day, const std::function<bool()>& step) {
    const std::optional<rlock::Lease> lease =
        client_.getLock("books:" + day).tryAcquire({.wait = std::chrono::seconds(2)});
    if (!lease) {
      return Outcome::busy;
    }
    do {
      if (!lease->held()) {
        return Outcome::interrupted;
      }
    } while (step());
    return Outcome::closed;
  }

 private:
  rlock::Client& client_;
};
