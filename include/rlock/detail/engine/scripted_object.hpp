// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/engine/acquire_task.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/engine/query_task.hpp>
#include <rlock/duration.hpp>
#include <rlock/result.hpp>

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// The part that all objects of one node have in common: it can run a task on the calling thread or
/// in the background, or say at once why not.
///
/// It guarantees that a call is either refused before anything is sent (closed, forked, on the loop
/// thread, too many, wrong arguments) or is a task that ends; that a refusal reaches a handler
/// later and never inside the call; and that each error names the lock, the owner and the node.
/// Called on the application's threads.
///
/// **Thread safety:** Immutable, safe from any thread.
class ScriptedObject {
 public:
  template <class T>
  using Handler = UniqueFunction<void(Result<T>)>;
  using Acquired = LockBackend::Acquired;
  using Scripts = std::shared_ptr<const LockScripts>;
  using TimePoint = LockEngine::Clock::time_point;
  static constexpr TimePoint kNoLimit = TimePoint::max();

  ScriptedObject(std::shared_ptr<LockEngine> engine,
                 Scripts scripts,
                 HandlerPlace place = HandlerPlace::application)
      : engine_(std::move(engine)), scripts_(std::move(scripts)), handlerPlace_(place) {}

  [[nodiscard]] const std::string& name() const { return scripts_->titleString(); }
  [[nodiscard]] LockEngine& engine() const noexcept { return *engine_; }
  [[nodiscard]] const std::shared_ptr<LockEngine>& enginePtr() const noexcept { return engine_; }
  [[nodiscard]] const Scripts& scripts() const noexcept { return scripts_; }

  /// Fills in what an error does not know yet.
  [[nodiscard]] Error describe(Error error, OwnerId owner = {}) const {
    return engine_->describe(std::move(error), *scripts_, owner, engine_->now());
  }

  /// @param make  makes the task, which has run() and startInBackground()
  template <class T, class Make>
  Result<T> runTask(OwnerId owner, Make make) const;
  template <class T, class Make>
  void startTask(OwnerId owner, Handler<T> handler, Make make) const;
  /// Tells a handler, later, that its call is not made.
  template <class T>
  void reject(Error why, OwnerId owner, Handler<T> handler) const;

  /// Says what is wrong with the arguments of an acquisition, or nothing.
  [[nodiscard]] static std::optional<Error> check(const AcquireParams& params);
  /// Says what is wrong with a lease, or nothing.
  [[nodiscard]] static std::optional<Error> checkLease(Duration lease);

  /// Acquires by given scripts, which may be for this one acquisition only.
  Result<Acquired> acquire(Scripts scripts, AcquireParams&& params) const;
  void acquireAsync(Scripts scripts, AcquireParams&& params, Handler<Acquired> handler) const;

  /// Whether a request begins an operation of the application, which may be refused for too much
  /// work, or is a further one of an operation that was let in.
  enum class Part : std::uint8_t { first, further };

  /// One call that may be repeated.
  /// @param compose  `void(Call&, const LockScripts&, std::string_view ownerField)`
  /// @param parse    `std::optional<T>(const Reply&)`
  /// @param until    a limit beside callTimeout, for one of several calls
  /// @param unanswered  as in QueryTask
  /// @param part     further: it does not count as too many
  template <class T, class Compose, class Parse>
  Result<T> ask(OwnerId owner,
                Compose compose,
                Parse parse,
                TimePoint until = kNoLimit,
                typename QueryTask<T>::Unanswered unanswered = {},
                Part part = Part::first) const {
    return runTask<T>(owner,
                      [&] { return makeQuery<T>(owner, compose, parse, until, unanswered, part); });
  }
  template <class T, class Compose, class Parse>
  void askAsync(OwnerId owner,
                Handler<T> handler,
                Compose compose,
                Parse parse,
                TimePoint until = kNoLimit,
                typename QueryTask<T>::Unanswered unanswered = {},
                Part part = Part::first) const {
    startTask<T>(owner, std::move(handler), [&] {
      return makeQuery<T>(owner, compose, parse, until, unanswered, part);
    });
  }

 private:
  static constexpr Duration kLongestLease = std::chrono::hours(24 * 365);
  static constexpr std::size_t kLongestLabel = 256;

  template <class T, class Compose, class Parse>
  IntrusivePtr<QueryTask<T>> makeQuery(OwnerId owner,
                                       Compose& compose,
                                       Parse& parse,
                                       TimePoint until,
                                       typename QueryTask<T>::Unanswered& unanswered,
                                       Part part) const;

  const std::shared_ptr<LockEngine> engine_;
  const Scripts scripts_;
  const HandlerPlace handlerPlace_;
};

template <class T, class Make>
Result<T> ScriptedObject::runTask(OwnerId owner, Make make) const {
  if (auto why = engine_->refuse(true)) {
    return describe(std::move(*why), owner);
  }
  const auto task = make();
  if (auto why = task->mayBeRefused() ? engine_->tooMany() : std::nullopt) {
    return describe(std::move(*why), owner);
  }
  return task->run();
}

template <class T, class Make>
void ScriptedObject::startTask(OwnerId owner, Handler<T> handler, Make make) const {
  if (auto why = engine_->refuse(false)) {
    reject<T>(std::move(*why), owner, std::move(handler));
    return;
  }
  const auto task = make();
  if (auto why = task->mayBeRefused() ? engine_->tooMany() : std::nullopt) {
    reject<T>(std::move(*why), owner, std::move(handler));
    return;
  }
  task->setHandlerPlace(handlerPlace_);
  task->startInBackground(std::move(handler));
}

template <class T>
void ScriptedObject::reject(Error why, OwnerId owner, Handler<T> handler) const {
  engine_->callbacks().reject(
      [handler = std::move(handler), error = describe(std::move(why), owner)]() mutable {
        handler(Result<T>(std::move(error)));
      },
      handlerPlace_);
}

inline std::optional<Error> ScriptedObject::check(const AcquireParams& params) {
  if (params.owner == OwnerId{}) {
    // All that forgot theirs would be one owner, and be let in together.
    return Error(Errc::invalidArgument,
                 "0 is no owner; make one by newOwner(), or give currentOwner()");
  }
  if (!params.wait.valid()) {
    return Error(Errc::invalidArgument, "the wait is not a number");
  }
  if (params.lease) {
    if (auto why = checkLease(*params.lease)) {
      return why;
    }
  }
  if (params.maxHold && !params.maxHold->isPositive()) {
    return Error(Errc::invalidArgument,
                 fmt::format("a longest hold of {} is not above 0", toString(*params.maxHold)));
  }
  if (params.sync) {
    if (const std::string problem = syncProblem(*params.sync); !problem.empty()) {
      return Error(Errc::invalidArgument, "AcquireOptions::sync: " + problem);
    }
  }
  if (params.label.size() > kLongestLabel) {
    return Error(
        Errc::invalidArgument,
        fmt::format("a label of {} bytes is longer than {}", params.label.size(), kLongestLabel));
  }
  return std::nullopt;
}

inline std::optional<Error> ScriptedObject::checkLease(Duration lease) {
  if (lease.isPositive() && lease <= kLongestLease) {
    return std::nullopt;
  }
  return Error(
      Errc::invalidArgument,
      fmt::format("a lease of {} is not between 1ns and 365d; leave it out to have the hold "
                  "renewed until it is released",
                  toString(lease)));
}

inline Result<ScriptedObject::Acquired> ScriptedObject::acquire(Scripts scripts,
                                                                AcquireParams&& params) const {
  const OwnerId owner = params.owner;
  if (auto why = check(params)) {
    return describe(std::move(*why), owner);
  }
  return runTask<Acquired>(owner, [&] {
    return makeIntrusive<AcquireTask>(engine_, std::move(scripts), std::move(params));
  });
}

inline void ScriptedObject::acquireAsync(Scripts scripts,
                                         AcquireParams&& params,
                                         Handler<Acquired> handler) const {
  const OwnerId owner = params.owner;
  if (auto why = check(params)) {
    reject<Acquired>(std::move(*why), owner, std::move(handler));
    return;
  }
  startTask<Acquired>(owner, std::move(handler), [&] {
    return makeIntrusive<AcquireTask>(engine_, std::move(scripts), std::move(params));
  });
}

template <class T, class Compose, class Parse>
IntrusivePtr<QueryTask<T>> ScriptedObject::makeQuery(OwnerId owner,
                                                     Compose& compose,
                                                     Parse& parse,
                                                     TimePoint until,
                                                     typename QueryTask<T>::Unanswered& unanswered,
                                                     Part part) const {
  auto task = makeIntrusive<QueryTask<T>>(
      engine_,
      scripts_,
      owner,
      [&](Call& call, std::string_view field) { compose(call, *scripts_, field); },
      std::move(parse),
      until,
      std::move(unanswered));
  if (part == Part::further) {
    task->setFurther();
  }
  return task;
}

}  // namespace rlock::detail
