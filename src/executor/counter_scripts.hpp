// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "executor/lock_scripts.hpp"
#include "executor/marker_pool.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace rlock::detail {

/// What semaphores and latches have in common: one decimal number that belongs to nobody. Whatever
/// changes it carries a marker.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class CounterScripts : public LockScripts {
 public:
  [[nodiscard]] const std::shared_ptr<MarkerPool>& markers() const noexcept { return markers_; }

  /// Sets the counter if it does not exist. The reply is 1 or 0.
  /// @param life  until it expires; zero: never
  virtual void composeTrySet(Call& call,
                             std::int64_t value,
                             std::chrono::milliseconds life) const = 0;
  /// Deletes it. The reply is 1 or 0.
  virtual void composeRemove(Call& call) const = 0;
  /// The reply is the number as text, or nothing.
  void composeGet(Call& call) const { call.setCommand({"GET", name}); }

 protected:
  CounterScripts(std::string_view counterName,
                 const LockTraits& lockTraits,
                 std::string counterChannel,
                 std::shared_ptr<MarkerPool> markers);

  void trySet(Call& call,
              std::int64_t value,
              std::chrono::milliseconds life,
              std::string_view message) const;
  void remove(Call& call, std::string_view message) const;

  /// A marker for one request after the other.
  [[nodiscard]] MarkerPool::Loan borrowMarker() const;
  /// Starts a script with a marker of its own.
  void startChange(Call& call, const lua::Script& script) const;
  void startChange(Call& call, const lua::Script& script, const MarkerPool::Loan& marker) const;

 private:
  const std::shared_ptr<MarkerPool> markers_;
};

/// A semaphore: the number is what is available.
class SemaphoreScripts : public CounterScripts {
 public:
  SemaphoreScripts(std::string_view semaphoreName, std::shared_ptr<MarkerPool> markers);

  [[nodiscard]] std::string_view noun() const noexcept override { return "semaphore"; }

  void composeTrySet(Call& call, std::int64_t value, std::chrono::milliseconds life) const override;
  void composeRemove(Call& call) const override;

  struct Sum {
    enum class Kind : std::uint8_t { added, missing, outOfRange };
    Kind kind;
    std::int64_t permits;  ///< now
  };
  void composeAdd(Call& call, std::int64_t permits, bool onlyIfExists) const;
  [[nodiscard]] static std::optional<Sum> parseSum(const Reply& reply);
  /// The reply is the number there was.
  void composeDrain(Call& call) const;

 protected:
  SemaphoreScripts(std::string_view semaphoreName,
                   const LockTraits& lockTraits,
                   std::shared_ptr<MarkerPool> markers);
};

/// One acquisition of permits. What it takes belongs to nobody on the server, so its marker says
/// what became of a request whose reply was lost.
///
/// **Thread safety:** One thread at a time, as its acquisition.
class PermitAcquisition final : public SemaphoreScripts {
 public:
  PermitAcquisition(const SemaphoreScripts& semaphore, int permits);

  void composeAcquire(Call& call, const AcquireRequest& request) const override;
  void composeSettle(Call& call, const SettleRequest& request) const override;

 private:
  const MarkerPool::Loan marker_;
};

/// A latch: the number is how often it must be counted down until it opens.
class LatchScripts final : public CounterScripts {
 public:
  LatchScripts(std::string_view latchName, std::shared_ptr<MarkerPool> markers);

  [[nodiscard]] std::string_view noun() const noexcept override { return "latch"; }

  void composeTrySet(Call& call, std::int64_t value, std::chrono::milliseconds life) const override;
  void composeRemove(Call& call) const override;
  /// The reply is the count before.
  void composeCountDown(Call& call) const;
  /// Granted: the latch is open.
  void composeAcquire(Call& call, const AcquireRequest& request) const override;
};

}  // namespace rlock::detail
