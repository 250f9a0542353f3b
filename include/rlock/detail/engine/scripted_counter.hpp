// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/engine/scripted_object.hpp>
#include <rlock/detail/executor/counter_scripts.hpp>

#include <memory>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// A semaphore or a latch of one node.
///
/// **Thread safety:** Safe to call concurrently from any thread.
template <class CounterKind>
class ScriptedCounter : public ScriptedObject {
 public:
  ScriptedCounter(const std::shared_ptr<LockEngine>& engine,
                  std::shared_ptr<const CounterKind> counter)
      : ScriptedObject(engine, counter), counter_(std::move(counter)) {}

  [[nodiscard]] const std::shared_ptr<const CounterKind>& counter() const noexcept {
    return counter_;
  }

 private:
  const std::shared_ptr<const CounterKind> counter_;
};

class ScriptedSemaphore final : public ScriptedCounter<SemaphoreScripts> {
  using ScriptedCounter::ScriptedCounter;
};

class ScriptedLatch final : public ScriptedCounter<LatchScripts> {
  using ScriptedCounter::ScriptedCounter;
};

}  // namespace rlock::detail
