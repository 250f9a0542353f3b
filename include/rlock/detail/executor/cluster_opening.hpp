// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/executor/connection_history.hpp>
#include <rlock/error.hpp>
#include <rlock/result.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

namespace rlock::detail {

/// The wait for the first map of a cluster, by the caller that opens a client. The caller is told
/// once: that a map was read, or why none was, as soon as each configured address has had its turn
/// or the time is over. ClusterRouter reports maps and failures.
///
/// **Thread safety:** loop thread only.
class ClusterOpening {
 public:
  using Ready = UniqueFunction<void(Result<void>)>;

  /// @param limit  then the reason is told although some address may not have had its turn
  ClusterOpening(std::shared_ptr<Env> env, std::chrono::milliseconds limit)
      : env_(std::move(env)), limit_(limit), timer_(env_->makeTimer([this] { timeIsOver(); })) {}

  void begin(Ready ready) {
    ready_ = std::move(ready);
    timer_->armAt(env_->now() + limit_);
  }
  /// A map was read.
  void succeeded() { tell(Result<void>()); }
  /// No map could be read. Returns whether somebody was told.
  /// @param everywhere  each configured address has had its turn
  bool failed(const Error& error, bool everywhere);
  /// Nobody is told any more.
  void close() noexcept { timer_->disarm(); }

 private:
  void timeIsOver();
  void tell(Result<void> result);

  const std::shared_ptr<Env> env_;
  const std::chrono::milliseconds limit_;
  const std::unique_ptr<Timer> timer_;
  Ready ready_;
  std::optional<Error> reason_;
};

inline bool ClusterOpening::failed(const Error& error, bool everywhere) {
  if (!ready_) {
    return false;
  }
  // A lasting error, such as a wrong password, says more than one that passes: it is what has to be
  // corrected.
  if (!reason_ || !isPermanent(reason_->errc())) {
    reason_ = error;
  }
  if (!everywhere && timer_->armed()) {
    return false;
  }
  tell(Result<void>(*reason_));
  return true;
}

/// An attempt to connect that is under way ends by itself, and says why.
inline void ClusterOpening::timeIsOver() {
  if (reason_) {
    tell(Result<void>(*reason_));
  }
}

inline void ClusterOpening::tell(Result<void> result) {
  timer_->disarm();
  reason_.reset();
  if (ready_) {
    std::exchange(ready_, nullptr)(std::move(result));
  }
}

}  // namespace rlock::detail
