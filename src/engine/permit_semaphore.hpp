// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/scripted_object.hpp"
#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/executor/permit_scripts.hpp>
#include <rlock/duration.hpp>
#include <rlock/result.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// A semaphore of one node whose permits have ids and may expire.
///
/// Each call is first described, and then made: on the calling thread or in the background.
///
/// **Thread safety:** Immutable, safe from any thread.
class PermitSemaphore {
 public:
  template <class T>
  using Handler = UniqueFunction<void(Result<T>)>;
  using Acquired = LockBackend::Acquired;

  /// How many permits one call may name. The server does nothing else meanwhile: about 25 ms.
  static constexpr int kMost = 10'000;

  PermitSemaphore(const std::shared_ptr<LockEngine>& engine, std::string_view name)
      : PermitSemaphore(engine, std::make_shared<PermitScripts>(name, engine->markers())) {}

  [[nodiscard]] const std::string& name() const noexcept { return object_.name(); }

  /// Permits that are to be acquired, under ids that are known before.
  struct Acquisition {
    std::optional<Error> refusal;  ///< what is wrong with it
    std::shared_ptr<const PermitScripts> scripts;
    AcquireParams params;
    bool nothing = false;  ///< no permits: there is nothing to do
  };
  /// @param kept  the permit is to be held as an object, and renewed unless it has a lease
  [[nodiscard]] Acquisition acquisition(int permits, bool kept, AcquireParams params) const;
  Result<Acquired> acquire(Acquisition what) const;
  void acquireAsync(Acquisition what, Handler<Acquired> handler) const;
  /// The lock that releases a kept permit.
  [[nodiscard]] std::shared_ptr<LockBackend> holder(const Acquisition& what) const;

  /// One call that may be repeated.
  template <class T>
  struct Request {
    std::optional<Error> refusal;
    std::function<void(Call&, const PermitScripts&)> compose;
    std::function<std::optional<std::int64_t>(const Reply&)> parse;
    std::function<Result<T>(std::int64_t)> convert;
  };
  [[nodiscard]] Request<int> availablePermits() const;
  [[nodiscard]] Request<int> getPermits() const;
  [[nodiscard]] Request<int> acquiredPermits() const;
  [[nodiscard]] Request<bool> trySetPermits(int permits) const;
  [[nodiscard]] Request<void> setPermits(int permits) const;
  [[nodiscard]] Request<void> addPermits(int delta) const;
  [[nodiscard]] Request<bool> remove() const;
  [[nodiscard]] Request<int> tryRelease(std::span<const std::string_view> ids) const;
  [[nodiscard]] Request<void> release(std::span<const std::string_view> ids) const;
  [[nodiscard]] Request<bool> updateLeaseTime(std::string_view id,
                                              std::optional<Duration> lease) const;
  using LeaseTime = std::optional<std::chrono::milliseconds>;
  [[nodiscard]] Request<LeaseTime> getLeaseTime(std::string_view id) const;

  template <class T>
  Result<T> run(const Request<T>& request) const {
    if (request.refusal) {
      return object_.describe(*request.refusal);
    }
    return converted(request, object_.ask<std::int64_t>({}, composeOf(request), request.parse));
  }
  template <class T>
  void start(const Request<T>& request, Handler<T> handler) const {
    if (request.refusal) {
      object_.reject<T>(*request.refusal, {}, std::move(handler));
      return;
    }
    object_.askAsync<std::int64_t>(
        {},
        [self = *this, request, handler = std::move(handler)](Result<std::int64_t> reply) mutable {
          handler(self.converted(request, std::move(reply)));
        },
        composeOf(request),
        request.parse);
  }

 private:
  using Scripts = std::shared_ptr<const PermitScripts>;

  PermitSemaphore(const std::shared_ptr<LockEngine>& engine, Scripts scripts)
      : object_(engine, scripts), scripts_(std::move(scripts)) {}

  template <class T>
  auto composeOf(const Request<T>& request) const {
    return [this, &request](Call& call, const LockScripts& /*same*/, std::string_view /*owner*/) {
      request.compose(call, *scripts_);
    };
  }
  template <class T>
  Result<T> converted(const Request<T>& request, Result<std::int64_t> reply) const {
    if (!reply.has_value()) {
      return reply.error();
    }
    Result<T> result = request.convert(*reply);
    if (!result.has_value()) {
      return object_.describe(result.error());
    }
    return result;
  }
  template <class T>
  Request<T> change(PermitScripts::Change what, int number) const;
  template <class T>
  Request<T> giveBack(std::span<const std::string_view> ids,
                      std::function<Result<T>(std::int64_t)> convert) const;

  const ScriptedObject object_;
  const Scripts scripts_;
};

}  // namespace rlock::detail
