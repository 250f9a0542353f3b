// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/fork.hpp>

#include <condition_variable>
#include <cstdint>
#include <utility>

namespace rlock::detail {

/// One call under way whose handler will run in an execution context of Asio's.
class ContextCall {
 public:
  ContextCall() = default;
  ContextCall(const ContextCall&) = delete;
  ContextCall& operator=(const ContextCall&) = delete;

 protected:
  virtual ~ContextCall() = default;

 private:
  friend class ContextCalls;

  /// Asks the call to stop and destroys this object with its handler, which is not called.
  virtual void end() noexcept = 0;

  // Protected by the mutex of the ContextCalls.
  ContextCall* previous_ = nullptr;
  ContextCall* next_ = nullptr;
};

/// The calls under way for one execution context. The context may be destroyed before they are
/// done, while a client's thread is about to deliver a result there: then either the result is
/// delivered first, or the call is ended and its result dropped.
///
/// Invariants: a call in the list is neither delivered nor ended; it leaves the list once, to the
/// thread that delivers it (Taking) or to endAll(). When endAll() has returned, no thread touches
/// the context any more.
///
/// endAll() blocks until the deliveries that have begun are over, which is why this header alone of
/// detail/ has a condition variable. It cannot be in src/: Asio's own destructor calls it, in a
/// program that may be linked with a library that was compiled without Asio.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class ContextCalls {
 public:
  ContextCalls() = default;
  ContextCalls(const ContextCalls&) = delete;
  ContextCalls& operator=(const ContextCalls&) = delete;
  ~ContextCalls() = default;

  /// False: the context is being destroyed, and the call stays the caller's. Otherwise whoever has
  /// taken the call out may use it, or endAll() ends it.
  [[nodiscard]] bool add(ContextCall& call);

  /// Takes a call out in order to deliver its result. While this object lives, the context does,
  /// too.
  class Taking {
   public:
    /// @param call  only looked at when it was not ended
    Taking(ContextCalls& calls, ContextCall* call);
    Taking(const Taking&) = delete;
    Taking& operator=(const Taking&) = delete;
    ~Taking();

    /// False: the call was ended, and is gone.
    explicit operator bool() const noexcept { return taken_; }

   private:
    ContextCalls& calls_;
    bool taken_ = false;
  };

  /// The context is being destroyed: ends all calls, after those that are just being delivered. In
  /// a child after fork() it does nothing: the thread that delivers one may be the parent's.
  void endAll() noexcept;

 private:
  AnnotatedMutex mutex_;
  /// From here on every call that is not taken has been ended.
  bool closed_ RLOCK_GUARDED_BY(mutex_) = false;
  int delivering_ RLOCK_GUARDED_BY(mutex_) = 0;
  std::condition_variable_any delivered_;
  ContextCall* first_ RLOCK_GUARDED_BY(mutex_) = nullptr;
  const std::uint32_t forkGeneration_ = forkGeneration();
};

inline bool ContextCalls::add(ContextCall& call) {
  const MutexLock lock(mutex_);
  if (closed_) {
    return false;
  }
  call.next_ = first_;
  if (first_ != nullptr) {
    first_->previous_ = &call;
  }
  first_ = &call;
  return true;
}

inline ContextCalls::Taking::Taking(ContextCalls& calls, ContextCall* call) : calls_(calls) {
  const MutexLock lock(calls_.mutex_);
  if (calls_.closed_) {
    return;
  }
  if (call->previous_ != nullptr) {
    call->previous_->next_ = call->next_;
  } else {
    calls_.first_ = call->next_;
  }
  if (call->next_ != nullptr) {
    call->next_->previous_ = call->previous_;
  }
  ++calls_.delivering_;
  taken_ = true;
}

inline ContextCalls::Taking::~Taking() {
  if (taken_) {
    const MutexLock lock(calls_.mutex_);
    if (--calls_.delivering_ == 0) {
      calls_.delivered_.notify_all();
    }
  }
}

inline void ContextCalls::endAll() noexcept {
  if (forkGeneration() != forkGeneration_) {
    return;
  }
  ContextCall* call = nullptr;
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    call = std::exchange(first_, nullptr);
    while (delivering_ > 0) {
      delivered_.wait(mutex_);
    }
  }
  // Handlers are destroyed without the mutex: what they own may begin further calls, or end some.
  while (call != nullptr) {
    ContextCall* const next = call->next_;
    call->end();
    call = next;
  }
}

}  // namespace rlock::detail
