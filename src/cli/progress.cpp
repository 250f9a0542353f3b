// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.hpp"

#include "cli/connection.hpp"
#include "cli/duration_text.hpp"
#include "cli/holder_label.hpp"
#include "cli/terminal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <unistd.h>

namespace rlock::cli {

namespace {

using std::chrono::milliseconds;

std::string holderSince(const LockHolder& holder, std::chrono::sys_seconds now) {
  if (holder.label.empty()) {
    return "owner " + detail::escapeForDisplay(holder.owner);
  }
  const HolderLabel label = parseLabel(holder.label);
  std::string text = detail::escapeForDisplay(label.text, 60);
  if (label.since) {
    text += fmt::format(" ({}@{}, pid {}) for {}",
                        detail::escapeForDisplay(label.user),
                        detail::escapeForDisplay(label.host),
                        label.pid,
                        showDuration(now - *label.since));
  }
  return text;
}

bool isHeldByOthers(const std::optional<LockInfo>& info, const std::string& ownId) {
  return info && !info->holders.empty() && !info->holders.front().owner.starts_with(ownId);
}

}  // namespace

std::string waitingLine(const std::string& name,
                        const std::optional<LockInfo>& info,
                        milliseconds waited,
                        std::optional<Duration> limit,
                        std::chrono::sys_seconds now) {
  std::string line = fmt::format(
      "waiting {} for \"{}\"", showDuration(waited), detail::escapeForDisplay(name, 60));
  if (limit && !limit->isInfinite()) {
    line += fmt::format(" (at most {})", showDuration(limit->ceilMilliseconds()));
  }
  if (!info || info->holders.empty()) {
    return line;
  }
  line += ": held by " + holderSince(info->holders.front(), now);
  if (info->holders.size() > 1) {
    line += fmt::format(" and {} more", info->holders.size() - 1);
  }
  if (info->timeToLive && *info->timeToLive != milliseconds::max()) {
    line += fmt::format(", {} left unless renewed", showDuration(*info->timeToLive));
  }
  return line;
}

Progress::Progress(const Arguments& arguments)
    : lock_(arguments.lock),
      terminal_(::isatty(STDERR_FILENO) == 1),
      verbose_(arguments.verbose),
      began_(std::chrono::steady_clock::now()),
      next_(began_ + std::chrono::seconds(1)) {}

int Progress::untilNextTickMs() const {
  if (!wanted()) {
    return -1;
  }
  const auto left = std::chrono::ceil<milliseconds>(next_ - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<milliseconds::rep>(0, left.count()));
}

void Progress::tick(const Acquisition& acquisition) {
  const auto now = std::chrono::steady_clock::now();
  if (!wanted() || now < next_) {
    return;
  }
  next_ = now + (terminal_ ? std::chrono::seconds(1) : std::chrono::seconds(10));
  const auto client = acquisition.client();
  if (client == nullptr) {
    return;
  }
  if (!answer_.valid()) {
    try {
      answer_ = client->inspectAsync(asked()).toFuture();
    } catch (const std::exception&) {
      return;  // The acquisition itself says what is wrong.
    }
    next_ = now + milliseconds(100);
    return;
  }
  if (answer_.wait_for(milliseconds(0)) != std::future_status::ready) {
    next_ = now + milliseconds(100);
    return;
  }
  std::optional<LockInfo> info;
  try {
    info = answer_.get();
  } catch (const std::exception&) {
    // Rules may allow the lock and not the question: then only the time is shown.
  }
  answer_ = {};
  if (!isHeldByOthers(info, client->id()) && passedOver_ < lock_.also.size()) {
    // It is another one that we wait for, perhaps with this one in our hands.
    ++passedOver_;
    asked_ = (asked_ + 1) % (lock_.also.size() + 1);
    next_ = now + milliseconds(100);
    return;
  }
  // Where that is so of all of them, or rules forbid the question, the line is shown all the same.
  passedOver_ = 0;
  // A job in the background would write over what is typed in front of it.
  if (const pid_t foreground = terminal_ ? ::tcgetpgrp(STDERR_FILENO) : -1;
      foreground >= 0 && foreground != ::getpgrp()) {
    return;
  }
  const std::string line =
      waitingLine(asked(),
                  info,
                  std::chrono::duration_cast<milliseconds>(now - began_),
                  lock_.wait,
                  std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()));
  if (terminal_) {
    const auto columns = static_cast<std::size_t>(terminalSize(STDERR_FILENO).columns);
    writeError(fmt::format("\r\033[K{}", line.substr(0, columns - 1)));
    std::fflush(stderr);
    shown_ = true;
  } else {
    complain(line);
  }
}

const std::string& Progress::asked() const {
  return asked_ == 0 ? lock_.name : lock_.also[asked_ - 1];
}

void Progress::clear() {
  if (shown_) {
    writeError("\r\033[K");
    std::fflush(stderr);
    shown_ = false;
  }
}

}  // namespace rlock::cli
