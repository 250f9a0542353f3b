// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/engine/engine_context.hpp>
#include <rlock/detail/engine/hold_book.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rlock::detail {

/// The end of a client: gives back what it holds, and waits until nothing is under way that could
/// leave something behind on the server, or until a deadline.
///
/// Four things are waited for: releases that it sends itself; requests that may obtain something
/// (HoldBook::unreconciled, HoldBook::late); deliveries, which give back what nobody else can give
/// back; and entries in queues on the server. Each that ends after the client was closed calls
/// mayBeOver(), and the last one finds that closing is over.
///
/// **Thread safety:** Safe to call concurrently from any thread, unless a method says otherwise.
class Closing {
 public:
  using Clock = std::chrono::steady_clock;

  Closing(EngineContext& context, HoldBook& book)
      : context_(context), book_(book), look_(context.env()->makeTask([this] { endIfOver(); })) {}

  /// The client was marked closed. Gives back `held`, and calls `done` on the loop when everything
  /// is given back, or at `deadline`. Loop thread.
  void begin(const std::vector<HoldPtr>& held,
             Clock::time_point deadline,
             UniqueFunction<void()> done);
  /// Something that closing may be waiting for has ended.
  void mayBeOver() noexcept RLOCK_EXCLUDES(book_.mutex, mutex_) {
    look_->post(context_.sharing(*this));
  }
  /// The loop is about to end. Loop thread.
  void stop() noexcept { timer_.reset(); }

  /// A request is under way that gives something back which nobody else can give back. Closing
  /// waits for its end.
  void deliveryBegan() noexcept { deliveries_.fetch_add(1, std::memory_order_relaxed); }
  void deliveryEnded() noexcept;

  /// A waiter may have an entry in a queue on the server from here on. Closing waits for it to
  /// leave.
  /// @param entry  names the owner's entry in the queue, which all waiters of the owner share
  void entryTaken(const std::string& entry);
  /// The waiter needs it no more; returns whether no other waiter does. entryLeft() follows.
  bool entryAbandoned(const std::string& entry) noexcept;
  /// It has left, or cannot.
  void entryLeft() noexcept;

 private:
  class Release;

  void release(const std::vector<HoldPtr>& holds);
  void releaseDone();
  void endIfOver() RLOCK_EXCLUDES(book_.mutex, mutex_);
  void end() RLOCK_EXCLUDES(book_.mutex, mutex_);

  EngineContext& context_;
  HoldBook& book_;
  const std::unique_ptr<ReadyTask> look_;
  Atomic<std::size_t> deliveries_{0};
  Atomic<std::size_t> entries_{0};
  AnnotatedMutex mutex_;
  std::unordered_map<std::string, std::size_t> entrySharers_ RLOCK_GUARDED_BY(mutex_);

  // Loop thread only.
  std::unique_ptr<Timer> timer_;
  Clock::time_point deadline_{};
  std::size_t releases_ = 0;
  UniqueFunction<void()> done_;
};

/// Gives back one hold of a client that is being closed.
class Closing::Release final : public Call {
 public:
  Release(std::shared_ptr<Closing> closing, const HoldPtr& hold)
      : closing_(std::move(closing)),
        hold_(hold),
        owner_(closing_->context_.ownerField(hold->owner)) {
    scriptsOf(*hold_).composeReconcile(*this, {owner_, 0, {}});
  }

 private:
  void finished(Outcome /*outcome*/) noexcept override { closing_->releaseDone(); }

  const std::shared_ptr<Closing> closing_;
  const HoldPtr hold_;
  const std::string owner_;
};

inline void Closing::begin(const std::vector<HoldPtr>& held,
                           Clock::time_point deadline,
                           UniqueFunction<void()> done) {
  done_ = std::move(done);
  // One for this function itself, so that a release that fails at once does not end it all.
  releases_ = 1;
  deadline_ = deadline;
  try {
    timer_ = context_.env()->makeTimer([this] {
      if (done_) {
        end();
      }
    });
    timer_->armAt(deadline);
    release(held);
  } catch (const std::bad_alloc&) {
    // A hold that there is no memory to give back ends with its lease.
    if (!timer_) {
      end();
      return;
    }
  }
  releaseDone();
}

inline void Closing::release(const std::vector<HoldPtr>& holds) {
  for (const HoldPtr& hold : holds) {
    IntrusivePtr<Release> call;
    // A hold that there is no memory to give back ends with its lease.
    if (!ifThereIsMemorySoon(
            [&] { call = makeIntrusive<Release>(context_.sharing(*this), hold); })) {
      continue;
    }
    ++releases_;
    // Later there is nothing left to release.
    context_.dispatcher().start(
        std::move(call),
        std::min(deadline_, book_.endOf(*hold, context_.now()) + context_.callTimeout()));
  }
}

inline void Closing::releaseDone() {
  --releases_;
  endIfOver();
}

inline void Closing::endIfOver() {
  if (!done_) {
    return;
  }
  std::vector<HoldPtr> late;
  {
    // A grant that was under way when the client was closed is booked after `held` was counted.
    const MutexLock lock(book_.mutex);
    late.swap(book_.late);
  }
  // As in begin(): one of these may fail at once.
  ++releases_;
  release(late);
  --releases_;
  {
    const MutexLock lock(book_.mutex);
    // Requests under way give back what they obtain when they see that the client is closed; one of
    // them may have been granted since the look above.
    if (releases_ > 0 || entries_.load() > 0 || book_.unreconciled > 0 || !book_.late.empty() ||
        deliveries_.load() > 0) {
      return;
    }
  }
  end();
}

inline void Closing::end() {
  if (timer_) {
    timer_->disarm();
  }
  std::exchange(done_, nullptr)();
}

inline void Closing::deliveryEnded() noexcept {
  if (deliveries_.fetch_sub(1) == 1 && context_.closed()) {
    mayBeOver();
  }
}

inline void Closing::entryTaken(const std::string& entry) {
  const MutexLock lock(mutex_);
  ++entrySharers_[entry];
  entries_.fetch_add(1, std::memory_order_relaxed);
}

inline bool Closing::entryAbandoned(const std::string& entry) noexcept {
  const MutexLock lock(mutex_);
  const auto sharers = entrySharers_.find(entry);
  if (sharers != entrySharers_.end() && --sharers->second > 0) {
    return false;
  }
  if (sharers != entrySharers_.end()) {
    entrySharers_.erase(sharers);
  }
  return true;
}

inline void Closing::entryLeft() noexcept {
  if (entries_.fetch_sub(1) == 1 && context_.closed()) {
    mayBeOver();
  }
}

}  // namespace rlock::detail
