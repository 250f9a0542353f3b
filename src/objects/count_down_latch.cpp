// SPDX-License-Identifier: Apache-2.0

// CountDownLatch: a handle without state of its own. Each call becomes one request of a
// ScriptedLatch, through an Operation; the blocking calls run that Operation on the calling thread.
// Requests that change the count carry an idempotency key, so that a repeated one counts once.

#include "objects/counter_operations.hpp"
#include "objects/moved_from.hpp"
#include <rlock/count_down_latch.hpp>
#include <rlock/detail/engine/parse_reply.hpp>
#include <rlock/detail/engine/scripted_counter.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace rlock {

namespace {

using detail::asking;
using detail::Call;
using detail::Reply;
using detail::same;
using LatchBackend = std::shared_ptr<const detail::ScriptedLatch>;

template <class T>
Operation<T> wait(const LatchBackend& backend, Duration timeout, std::stop_token stop) {
  return detail::waiting<T>(
      backend,
      [backend]() -> std::shared_ptr<const detail::LockScripts> { return backend->counter(); },
      timeout,
      std::move(stop));
}

std::optional<std::int64_t> parseCount(const Reply& reply) {
  const auto count = detail::parseNumber(reply);
  return count ? std::optional(std::max<std::int64_t>(*count, 0)) : std::nullopt;
}

Result<void> counted(const Result<std::int64_t>& before) {
  if (!before.has_value()) {
    return before.error();
  }
  return {};
}

}  // namespace

CountDownLatch::CountDownLatch(std::shared_ptr<const detail::ScriptedLatch> backend) noexcept
    : backend_(std::move(backend)) {}

void CountDownLatch::await() {
  awaitAsync().get();
}

bool CountDownLatch::await(Duration timeout) {
  return awaitAsync(timeout).get();
}

bool CountDownLatch::await(std::stop_token stop, Duration timeout) {
  return awaitAsync(std::move(stop), timeout).get();
}

void CountDownLatch::countDown() {
  countDownAsync().get();
}

std::int64_t CountDownLatch::getCount() {
  return getCountAsync().get();
}

bool CountDownLatch::trySetCount(std::int64_t count) {
  return trySetCountAsync(count).get();
}

bool CountDownLatch::remove() {
  return removeAsync().get();
}

const std::string& CountDownLatch::getName() const& {
  return detail::present(backend_)->name();
}

std::string CountDownLatch::getName() const&& {
  return detail::present(backend_)->name();
}

Operation<void> CountDownLatch::awaitAsync() {
  if (!backend_) {
    return detail::movedFrom<void>();
  }
  return wait<void>(backend_, Duration::max(), {});
}

Operation<bool> CountDownLatch::awaitAsync(Duration timeout) {
  if (!backend_) {
    return detail::movedFrom<bool>();
  }
  return wait<bool>(backend_, timeout, {});
}

Operation<bool> CountDownLatch::awaitAsync(std::stop_token stop, Duration timeout) {
  if (!backend_) {
    return detail::movedFrom<bool>();
  }
  return wait<bool>(backend_, timeout, std::move(stop));
}

Operation<void> CountDownLatch::countDownAsync() {
  if (!backend_) {
    return detail::movedFrom<void>();
  }
  return asking<void, std::int64_t>(
      backend_,
      [scripts = backend_->counter()](Call& call) { scripts->composeCountDown(call); },
      detail::parseNumber,
      counted);
}

Operation<std::int64_t> CountDownLatch::getCountAsync() {
  if (!backend_) {
    return detail::movedFrom<std::int64_t>();
  }
  return asking<std::int64_t, std::int64_t>(
      backend_,
      [scripts = backend_->counter()](Call& call) { scripts->composeGet(call); },
      parseCount,
      same<std::int64_t>);
}

Operation<bool> CountDownLatch::trySetCountAsync(std::int64_t count) {
  if (!backend_) {
    return detail::movedFrom<bool>();
  }
  if (count < 0) {
    return detail::refused<bool>(backend_, fmt::format("a count of {} is below 0", count));
  }
  if (count == 0) {
    // A latch without a count is an open latch already. A stored zero would keep others from
    // setting it.
    return asking<bool, bool>(
        backend_,
        [scripts = backend_->counter()](Call& call) { scripts->composeIsLocked(call); },
        detail::parseYesNo,
        [](const Result<bool>& exists) -> Result<bool> {
          if (!exists.has_value()) {
            return exists.error();
          }
          return !*exists;
        });
  }
  return detail::settingOnce(backend_, count, std::chrono::milliseconds::zero());
}

Operation<bool> CountDownLatch::removeAsync() {
  if (!backend_) {
    return detail::movedFrom<bool>();
  }
  return detail::removing(backend_);
}

}  // namespace rlock
