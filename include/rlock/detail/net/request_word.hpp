// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/net/request.hpp>

#include <atomic>
#include <cstdint>

namespace rlock::detail::net {

/// The word of one request, which the thread that awaits it shares with the one that reads: whether
/// the request has ended, whether its thread is to read for everybody, whether that sleeps, and
/// whether it was interrupted. The thread sleeps on the word itself.
///
/// Invariant: the thread says that it sleeps before it does, so that whatever happens after its
/// last look changes the word, and the sleep returns at once.
///
/// **Thread safety:** safe from any thread, without a mutex. Nothing here takes memory or can fail.
class RequestWord {
 public:
  /// The next step of the thread that awaits a request.
  enum class Next : std::uint8_t {
    lead,       ///< it reads for everybody
    done,       ///< the request has ended
    interrupt,  ///< Request::interrupt() was called
    sleep,      ///< it sleeps while the word is the one it got; it will be woken
  };

  RequestWord() = delete;

  /// The request is submitted. An interrupt() may have come before, and counts.
  static void begin(Request& request) noexcept {
    request.state_.fetch_and(Request::kInterrupted, std::memory_order_relaxed);
  }
  /// Sets the done bit of a request that has ended. True: its thread sleeps on word() and has to be
  /// woken; the caller keeps the request alive until then.
  [[nodiscard]] static bool finish(Request& request) noexcept {
    return set(request, Request::kDone);
  }
  /// Has its thread read for everybody. True: it sleeps on word() and has to be woken.
  static bool appoint(Request& request) noexcept { return set(request, Request::kLead); }
  /// The same by its own thread.
  static void appointSelf(Request& request) noexcept {
    request.state_.fetch_or(Request::kLead, std::memory_order_relaxed);
  }

  [[nodiscard]] static bool done(const Request& request) noexcept {
    return has(request, Request::kDone);
  }
  [[nodiscard]] static bool leads(const Request& request) noexcept {
    return has(request, Request::kLead);
  }
  [[nodiscard]] static bool interrupted(const Request& request) noexcept {
    return has(request, Request::kInterrupted);
  }
  /// @param word  with `sleep`: the value to sleep on
  [[nodiscard]] static Next next(Request& request, std::uint32_t& word) noexcept;
  [[nodiscard]] static const std::atomic<std::uint32_t>& word(const Request& request) noexcept {
    return request.state_.word();
  }

 private:
  [[nodiscard]] static bool has(const Request& request, Request::Bit bit) noexcept {
    return (request.state_.load(std::memory_order_acquire) & bit) != 0;
  }
  /// Returns whether its thread sleeps.
  static bool set(Request& request, Request::Bit bit) noexcept {
    const std::uint32_t before = request.state_.fetch_or(bit, std::memory_order_acq_rel);
    return (before & Request::kSleeping) != 0;
  }
};

inline RequestWord::Next RequestWord::next(Request& request, std::uint32_t& word) noexcept {
  word = request.state_.load(std::memory_order_acquire);
  for (;;) {
    // The role comes first: a reader has to pass it on even when its own request has ended.
    if ((word & Request::kLead) != 0) {
      return Next::lead;
    }
    if ((word & Request::kDone) != 0) {
      return Next::done;
    }
    if ((word & Request::kInterrupted) != 0) {
      return Next::interrupt;
    }
    if ((word & Request::kSleeping) != 0) {
      return Next::sleep;
    }
    // The bit is set before the thread sleeps on the word, so an end that comes in between changes
    // the word, and the sleep returns at once.
    if (request.state_.compare_exchange_weak(
            word, word | Request::kSleeping, std::memory_order_acq_rel)) {
      word |= Request::kSleeping;
      return Next::sleep;
    }
  }
}

}  // namespace rlock::detail::net
