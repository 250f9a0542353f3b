// SPDX-License-Identifier: Apache-2.0

// The picture of `rlock top` and the memory between its looks. Pure functions of the locks, the
// times and the size of the terminal that topCommand() hands in, on its thread; nothing here asks a
// server or a clock. Names, holders and versions are escaped before they are cut, so that a line is
// as wide as it seems and no byte of it steers the terminal.
#include "cli/top_view.hpp"

#include "cli/duration_text.hpp"
#include "cli/holder_label.hpp"
#include "cli/lock_text.hpp"
#include <rlock/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace rlock::cli {

namespace {

using std::chrono::milliseconds;

// Cut or filled up to a width; the texts that come here are ASCII but for the bar.
std::string fitted(std::string text, std::size_t width) {
  if (text.size() > width) {
    text.resize(width > 0 ? width - 1 : 0);
    return width > 0 ? text + "~" : text;
  }
  return text + std::string(width - text.size(), ' ');
}

std::string rightFitted(const std::string& text, std::size_t width) {
  return text.size() >= width ? fitted(text, width) : std::string(width - text.size(), ' ') + text;
}

std::string holdersOf(const LockInfo& info) {
  std::vector<std::string> owners;
  for (const LockHolder& holder : info.holders) {
    owners.push_back(holder.owner);
  }
  // A hash has no order.
  std::sort(owners.begin(), owners.end());
  return fmt::format("{}", fmt::join(owners, " "));
}

/// The widths of the columns. On a wide terminal names and holders get the additional space.
struct Widths {
  std::size_t name, kind, bar, left, held, wait, turns, holder;

  explicit Widths(std::size_t columns) {
    kind = 6;
    bar = columns >= 120 ? 20 : 10;
    left = 7;
    held = 7;
    wait = 4;
    turns = 5;
    const std::size_t fixed = kind + bar + left + held + wait + turns + 7;
    const std::size_t rest = columns > fixed + 2 ? columns - fixed : 2;
    name = std::min<std::size_t>(rest * 2 / 5, 50);
    holder = rest - name;
  }
};

std::string_view shortKind(LockKind kind) {
  switch (kind) {
    case LockKind::lock:
      return "lock";
    case LockKind::fairLock:
      return "fair";
    case LockKind::fencedLock:
      return "fenced";
    case LockKind::readWriteLock:
      return "rw";
    case LockKind::simpleLock:
      return "simple";
    case LockKind::counter:
      return "count";
    case LockKind::permitSemaphore:
      return "sem";
    default:
      return "?";
  }
}

std::string bar(const LockInfo& info,
                const TopHistory& history,
                std::size_t width,
                const Style& style) {
  if (!info.timeToLive) {
    return std::string(width, ' ');
  }
  if (*info.timeToLive == milliseconds::max()) {
    return std::string(width, '=');
  }
  const auto longest = std::max<milliseconds::rep>(history.longest.count(), 1);
  const double part = std::clamp(
      static_cast<double>(info.timeToLive->count()) / static_cast<double>(longest), 0.0, 1.0);
  const auto full = static_cast<std::size_t>(std::lround(part * static_cast<double>(width)));
  const std::string filled(full, '#');
  const std::string empty(width - full, '.');
  // A renewed hold never falls below half.
  const std::string colored = part < 0.25  ? style.red(filled)
                              : part < 0.5 ? style.yellow(filled)
                                           : style.green(filled);
  return (full > 0 ? colored : "") + style.dim(empty);
}

std::string heldText(const LockInfo& info,
                     const TopHistory& history,
                     std::chrono::sys_seconds now,
                     std::chrono::steady_clock::time_point steadyNow) {
  if (info.holders.empty()) {
    return "";
  }
  if (const auto since = parseLabel(info.holders.front().label).since) {
    return showDuration(now - *since);
  }
  // Only what we have seen ourselves.
  return ">" +
         showDuration(std::chrono::floor<std::chrono::seconds>(steadyNow - history.heldSince));
}

std::string holderColumn(const LockInfo& info) {
  std::string text;
  if (info.holders.empty()) {
    text = info.available ? fmt::format("{} available", *info.available) : "-";
  } else {
    text = holderText(info.holders.front());
    if (info.holders.size() > 1) {
      text = fmt::format("{} holders: {}", info.holders.size(), text);
    }
  }
  return text;
}

}  // namespace

void TopTracker::update(const std::vector<LockInfo>& locks,
                        std::chrono::steady_clock::time_point now) {
  std::map<std::string, TopHistory> next;
  for (const LockInfo& info : locks) {
    const auto before = histories_.find(info.name);
    TopHistory history = before != histories_.end() ? before->second : TopHistory();
    const std::string holders = holdersOf(info);
    if (before == histories_.end() || holders != history.holders) {
      if (begun_ && !holders.empty()) {
        ++history.changes;
        ++changes_;
      }
      history.holders = holders;
      history.longest = milliseconds(0);
      history.heldSince = now;
    }
    if (info.timeToLive && *info.timeToLive != milliseconds::max()) {
      history.longest = std::max(history.longest, *info.timeToLive);
    }
    next[info.name] = history;
  }
  histories_ = std::move(next);
  if (!begun_) {
    begun_ = true;
    first_ = now;
  }
  last_ = now;
}

double TopTracker::changesPerSecond() const {
  const double seconds = std::chrono::duration<double>(last_ - first_).count();
  return seconds > 0 ? static_cast<double>(changes_) / seconds : 0;
}

std::vector<std::string> topPicture(const TopHeader& header,
                                    const std::vector<LockInfo>& locks,
                                    const TopTracker& tracker,
                                    std::chrono::sys_seconds now,
                                    std::chrono::steady_clock::time_point steadyNow,
                                    TerminalSize size,
                                    const Style& style) {
  const auto columns = static_cast<std::size_t>(std::max(size.columns, 20));
  const auto rows = static_cast<std::size_t>(std::max(size.rows, 4));
  const Widths width(columns);
  std::size_t held = 0;
  std::size_t waiting = 0;
  for (const LockInfo& info : locks) {
    held += info.holders.empty() ? 0U : 1U;
    waiting += info.waiters.size();
  }
  std::vector<std::string> lines;
  lines.push_back(style.bold(
      fitted(fmt::format("rlock top {}  {}  {}  {:.1f} ms",
                         header.time,
                         header.server,
                         detail::escapeForDisplay(header.version),
                         std::chrono::duration<double, std::milli>(header.roundTrip).count()),
             columns)));
  if (header.error.empty()) {
    lines.push_back(
        fitted(fmt::format("{} names, {} held, {} queued waiters, {:.1f} hand-overs/s seen",
                           locks.size(),
                           held,
                           waiting,
                           tracker.changesPerSecond()),
               columns));
  } else {
    lines.push_back(style.red(fitted(header.error, columns)));
  }
  lines.push_back(style.dim(fitted(fmt::format("{} {} {} {} {} {} {} {}",
                                               fitted("NAME", width.name),
                                               fitted("KIND", width.kind),
                                               fitted("TIME LEFT", width.bar),
                                               rightFitted("", width.left),
                                               rightFitted("HELD", width.held),
                                               rightFitted("WAIT", width.wait),
                                               rightFitted("TURNS", width.turns),
                                               fitted("HOLDER", width.holder)),
                                   columns)));
  const std::size_t room = rows - lines.size();
  const std::size_t shown = locks.size() <= room ? locks.size() : room - 1;
  for (std::size_t i = 0; i < shown; ++i) {
    const LockInfo& info = locks[i];
    const TopHistory& history = tracker.of(info.name);
    std::string left;
    if (info.timeToLive) {
      left = *info.timeToLive == milliseconds::max() ? "no end" : showDuration(*info.timeToLive);
    }
    const std::string waiters = info.waiters.empty() ? "" : std::to_string(info.waiters.size());
    lines.push_back(fmt::format(
        "{} {} {} {} {} {} {} {}",
        fitted(detail::escapeForDisplay(info.name, width.name), width.name),
        fitted(std::string(shortKind(info.kind)), width.kind),
        bar(info, history, width.bar, style),
        rightFitted(left, width.left),
        rightFitted(heldText(info, history, now, steadyNow), width.held),
        style.yellow(rightFitted(waiters, width.wait)),
        rightFitted(history.changes == 0 ? "" : std::to_string(history.changes), width.turns),
        fitted(holderColumn(info), width.holder)));
  }
  if (shown < locks.size()) {
    lines.push_back(
        style.dim(fitted(fmt::format("... and {} more", locks.size() - shown), columns)));
  }
  lines.resize(rows, std::string());
  return lines;
}

}  // namespace rlock::cli
