// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/engine/permit_requests.hpp>
#include <rlock/detail/engine/scripted_lock.hpp>
#include <rlock/detail/engine/scripted_object.hpp>
#include <rlock/detail/executor/permit_scripts.hpp>
#include <rlock/result.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

namespace rlock::detail {

/// A semaphore of one node whose permits have ids and may expire.
///
/// Each call is first described (acquisition(), PermitRequests), and then made: on the calling
/// thread or in the background. So the four faces of a call share one description, and an argument
/// that is refused is refused in the same words by each. An acquisition chooses the ids of its
/// permits before it asks: by them a lost reply is reconciled.
///
/// **Thread safety:** Immutable, safe from any thread.
class PermitSemaphore {
 public:
  template <class T>
  using Handler = UniqueFunction<void(Result<T>)>;
  using Acquired = LockBackend::Acquired;

  PermitSemaphore(const std::shared_ptr<LockEngine>& engine,
                  std::shared_ptr<const PermitScripts> scripts)
      : object_(engine, scripts), scripts_(std::move(scripts)), requests_(engine, scripts_) {}

  [[nodiscard]] const std::string& name() const { return object_.name(); }
  /// Describes what run() and start() make.
  [[nodiscard]] const PermitRequests& requests() const noexcept { return requests_; }

  /// Permits that are to be acquired, under ids that are known before.
  struct Acquisition {
    std::optional<Error> refusal;  ///< what is wrong with it
    std::shared_ptr<const PermitScripts> scripts;
    AcquireParams params;
    bool nothing = false;  ///< no permits: there is nothing to do

    friend std::stop_token& stopOf(Acquisition& what) noexcept { return what.params.stop; }
  };
  /// @param kept  the permit is to be held as an object, and renewed unless it has a lease
  [[nodiscard]] Acquisition acquisition(int permits, bool kept, AcquireParams params) const;
  Result<Acquired> acquire(Acquisition what) const;
  void acquireAsync(Acquisition what, Handler<Acquired> handler) const;
  /// The lock that releases a kept permit.
  [[nodiscard]] std::shared_ptr<LockBackend> holder(const Acquisition& what) const;

  template <class T>
  Result<T> run(const PermitRequest<T>& request) const {
    if (request.refusal) {
      return object_.describe(*request.refusal);
    }
    return converted(
        request,
        object_.ask<std::int64_t>(
            {}, composeOf(request), request.parse, ScriptedObject::kNoLimit, request.unanswered));
  }
  template <class T>
  void start(const PermitRequest<T>& request, Handler<T> handler) const;

 private:
  using Scripts = std::shared_ptr<const PermitScripts>;

  template <class T>
  auto composeOf(const PermitRequest<T>& request) const {
    return [this, &request](Call& call, const LockScripts& /*same*/, std::string_view /*owner*/) {
      request.compose(call, *scripts_);
    };
  }
  template <class T>
  Result<T> converted(const PermitRequest<T>& request, Result<std::int64_t> reply) const;
  const ScriptedObject object_;
  const Scripts scripts_;
  const PermitRequests requests_;
};

inline PermitSemaphore::Acquisition PermitSemaphore::acquisition(int permits,
                                                                 bool kept,
                                                                 AcquireParams params) const {
  Acquisition result;
  params.owner = newOwner();
  params.wantsHandle = kept;
  result.refusal = PermitRequests::negative(permits);
  if (permits > PermitRequests::kMost) {
    result.refusal = PermitRequests::tooMany(static_cast<std::size_t>(permits));
  }
  result.nothing = permits == 0;
  if (!result.refusal && !result.nothing) {
    result.scripts = std::make_shared<const PermitScripts>(
        *scripts_, permits, kept ? HoldKind::permit : HoldKind::none, kept || params.lease);
  }
  result.params = std::move(params);
  return result;
}

inline Result<PermitSemaphore::Acquired> PermitSemaphore::acquire(Acquisition what) const {
  if (what.refusal) {
    return object_.describe(std::move(*what.refusal));
  }
  if (what.nothing) {
    if (auto why = object_.engine().refuse(true)) {
      return object_.describe(std::move(*why));
    }
    return Acquired(Grant());
  }
  return object_.acquire(std::move(what.scripts), std::move(what.params));
}

inline void PermitSemaphore::acquireAsync(Acquisition what, Handler<Acquired> handler) const {
  auto why = what.refusal;
  if (!why && what.nothing) {
    why = object_.engine().refuse(false);
  }
  if (why) {
    object_.reject<Acquired>(std::move(*why), {}, std::move(handler));
  } else if (what.nothing) {
    object_.engine().callbacks().reject(
        [handler = std::move(handler)]() mutable { handler(Acquired(Grant())); });
  } else {
    object_.acquireAsync(std::move(what.scripts), std::move(what.params), std::move(handler));
  }
}

inline std::shared_ptr<LockBackend> PermitSemaphore::holder(const Acquisition& what) const {
  return std::make_shared<ScriptedLock>(object_.enginePtr(), what.scripts);
}

template <class T>
void PermitSemaphore::start(const PermitRequest<T>& request, Handler<T> handler) const {
  if (request.refusal) {
    object_.reject<T>(*request.refusal, {}, std::move(handler));
    return;
  }
  object_.askAsync<std::int64_t>(
      {},
      [self = *this, request, handler = std::move(handler)](Result<std::int64_t> reply) mutable {
        handler(answerOrNoMemory<T>([&] { return self.converted(request, std::move(reply)); }));
      },
      composeOf(request),
      request.parse,
      ScriptedObject::kNoLimit,
      request.unanswered);
}

template <class T>
Result<T> PermitSemaphore::converted(const PermitRequest<T>& request,
                                     Result<std::int64_t> reply) const {
  if (!reply.has_value()) {
    return reply.error();
  }
  Result<T> result = request.convert(*reply);
  if (!result.has_value()) {
    return object_.describe(result.error());
  }
  return result;
}

}  // namespace rlock::detail
