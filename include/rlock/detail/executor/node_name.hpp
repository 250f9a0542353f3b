// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/error.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// The name of a node for messages, and the errors that it appears in. Connections change it, on
/// the loop thread, while callers put it into errors.
///
/// **Thread safety:** safe from any thread.
class NodeName {
 public:
  NodeName(std::shared_ptr<const Env> env, std::string name)
      : env_(std::move(env)), name_(std::move(name)) {}

  void set(std::string_view name) {
    const MutexLock lock(mutex_);
    name_ = name;
  }
  /// Empty in a forked child.
  [[nodiscard]] std::string get() const {
    // In a child another thread of the parent may have the mutex for ever.
    if (env_->abandoned()) {
      return {};
    }
    const MutexLock lock(mutex_);
    return name_;
  }
  /// An error of this node.
  /// @param text  what the server said, or, where there was no server to say it, what happened
  [[nodiscard]] Error describe(Errc errc, std::string_view text) const;

 private:
  const std::shared_ptr<const Env> env_;
  mutable AnnotatedMutex mutex_;
  std::string name_ RLOCK_GUARDED_BY(mutex_);
};

inline Error NodeName::describe(Errc errc, std::string_view text) const {
  ErrorContext context;
  context.node = get();
  if (errc == Errc::closed || errc == Errc::connectionFailed) {
    return Error(errc, text, std::move(context));
  }
  context.serverMessage = text;
  return Error(errc, {}, std::move(context));
}

}  // namespace rlock::detail
