// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/scripted_object.hpp"
#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/executor/inspection_scripts.hpp>
#include <rlock/inspection.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::detail {

/// Walks through all names that match a pattern and looks at each, without ever keeping the server
/// from other work, for callTimeout at most. An error says how far it came.
///
/// **Thread safety:** One thread at a time; its own handlers may run on several.
class NameWalk : public std::enable_shared_from_this<NameWalk> {
 public:
  using Info = std::optional<LockInfo>;
  using Found = std::vector<LockInfo>;
  using Handler = UniqueFunction<void(Result<Found>)>;

  NameWalk(std::shared_ptr<LockEngine> engine, std::string_view pattern);

  /// Looks at one name.
  static Result<Info> inspect(const std::shared_ptr<LockEngine>& engine, std::string_view name);
  static void inspectAsync(const std::shared_ptr<LockEngine>& engine,
                           std::string_view name,
                           UniqueFunction<void(Result<Info>)> handler);

  /// Walks on the calling thread.
  Result<Found> run();
  /// Walks in the background.
  void start(Handler handler);

 private:
  using ParseLook = std::function<std::optional<Info>(const Reply&)>;

  /// So many questions of one walk are under way at once.
  static constexpr std::size_t kAtOnce = 64;

  static ScriptedObject objectOf(const std::shared_ptr<LockEngine>& engine, std::string_view name);
  static void composeLook(Call& call, const LockScripts& scripts, std::string_view owner);
  static ParseLook parseLook(const ScriptedObject& object);

  void step();
  void stepDone(Result<ScanStep> step);
  void lookOn();
  void lookedAt(Result<Info> info);
  [[nodiscard]] Error soFar(const Error& error) const;
  [[nodiscard]] std::vector<std::string> fresh(std::vector<std::string> names);
  void keep(Info info);
  [[nodiscard]] Found sorted();

  const ScriptedObject object_;
  const std::string pattern_;
  LockEngine::Clock::time_point deadline_{};  // from the start on
  std::string cursor_ = "0";
  std::set<std::string> seen_;
  // While it walks in the background, mutex_ is held for these two as well where several handlers
  // may run; otherwise there is one thread.
  Found found_;
  std::size_t looks_ = 0;
  // While it walks in the background.
  AnnotatedMutex mutex_;
  std::vector<std::string> names_ RLOCK_GUARDED_BY(mutex_);  // still to be looked at
  std::size_t pending_ RLOCK_GUARDED_BY(mutex_) = 0;         // questions under way
  std::optional<Error> error_ RLOCK_GUARDED_BY(mutex_);      // the first
  Handler handler_;
};

}  // namespace rlock::detail
