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
#include <array>
#include <cmath>

namespace rlock::cli {

namespace {

using std::chrono::milliseconds;

// Cut or filled up to a width; the texts that come here are ASCII.
std::string fitted(const std::string& text, std::size_t width) {
  const std::string cut = abridged(text, width);
  return cut + std::string(width - cut.size(), ' ');
}

std::string rightFitted(const std::string& text, std::size_t width) {
  const std::string cut = abridged(text, width);
  return std::string(width - cut.size(), ' ') + cut;
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

/// The widths of the columns. On a wide terminal names and holders get the additional space, on a
/// narrow one the columns with a width of 0 are left out.
struct Widths {
  std::size_t name = 0, kind = 0, bar = 0, left = 0, held = 0, wait = 0, turns = 0, holder = 0;

  explicit Widths(std::size_t columns) {
    std::size_t fixed = 1;
    const auto use = [&fixed](std::size_t& column, std::size_t width) {
      column = width;
      fixed += width + 1;
    };
    if (columns >= 40) {
      use(left, 7);
      use(held, 7);
      use(wait, 4);
    }
    if (columns >= 72) {
      use(kind, 6);
      use(bar, columns >= 120 ? 20 : 10);
      use(turns, 5);
    }
    const std::size_t rest = columns - fixed;
    name = rest / 2;
    holder = rest - name;
  }

  /// A line of the table, of one text for each column in their order.
  [[nodiscard]] std::string line(const std::array<std::string, 8>& cells) const {
    const std::array<std::size_t, 8> widths{name, kind, bar, left, held, wait, turns, holder};
    std::string text;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (widths[i] > 0) {
        text += (i > 0 ? " " : "") + cells[i];
      }
    }
    return text;
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
                         detail::escapeForDisplay(header.server),
                         detail::escapeForDisplay(header.version),
                         std::chrono::duration<double, std::milli>(header.roundTrip).count()),
             columns)));
  if (header.error.empty()) {
    lines.push_back(fitted(
        fmt::format("{} names, {} held, {} waiting (fair locks only), {:.1f} hand-overs/s seen",
                    locks.size(),
                    held,
                    waiting,
                    tracker.changesPerSecond()),
        columns));
  } else {
    lines.push_back(style.red(fitted(header.error, columns)));
  }
  lines.push_back(style.dim(width.line({fitted("NAME", width.name),
                                        fitted("KIND", width.kind),
                                        fitted("TIME LEFT", width.bar),
                                        rightFitted("", width.left),
                                        rightFitted("HELD", width.held),
                                        rightFitted("WAIT", width.wait),
                                        rightFitted("TURNS", width.turns),
                                        fitted("HOLDER", width.holder)})));
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
    lines.push_back(width.line(
        {fitted(shownName(info, width.name), width.name),
         fitted(std::string(shortKind(info.kind)), width.kind),
         bar(info, history, width.bar, style),
         rightFitted(left, width.left),
         rightFitted(heldText(info, history, now, steadyNow), width.held),
         style.yellow(rightFitted(waiters, width.wait)),
         rightFitted(history.changes == 0 ? "" : std::to_string(history.changes), width.turns),
         fitted(holderColumn(info), width.holder)}));
  }
  if (shown < locks.size()) {
    lines.push_back(
        style.dim(fitted(fmt::format("... and {} more", locks.size() - shown), columns)));
  }
  lines.resize(rows, std::string());
  return lines;
}

}  // namespace rlock::cli
