// SPDX-License-Identifier: Apache-2.0

// Locks as text: for people the description of one and the table of many, for programs JSON. All of
// it is made of a LockInfo and, for how long a hold has lasted, of the time that the caller gives,
// without a look at the server or the clock. A holder's user, host and pid come out of its label,
// where the program itself has written them.
#include "cli/lock_text.hpp"

#include "cli/duration_text.hpp"
#include "cli/holder_label.hpp"
#include <rlock/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace rlock::cli {

namespace {

using std::chrono::milliseconds;
using Json = nlohmann::ordered_json;

std::string lifetimeText(const LockInfo& info) {
  if (!info.timeToLive) {
    return "-";
  }
  return *info.timeToLive == milliseconds::max() ? "no end" : showDuration(*info.timeToLive);
}

std::int64_t countOf(milliseconds length) {
  return length == milliseconds::max() ? -1 : length.count();
}

Json toJson(const LockHolder& holder) {
  Json json{{"owner", holder.owner}, {"holds", holder.holds}, {"exclusive", holder.exclusive}};
  if (!holder.label.empty()) {
    json["label"] = holder.label;
    const HolderLabel label = parseLabel(holder.label);
    if (label.since) {
      json["text"] = label.text;
      json["user"] = label.user;
      json["host"] = label.host;
      json["pid"] = label.pid;
      json["since"] = showTime(*label.since);
    }
  }
  if (holder.timeToLive) {
    json["ttlMs"] = countOf(*holder.timeToLive);
  }
  return json;
}

Json toJson(const LockInfo& info) {
  Json json{{"name", info.name}, {"kind", std::string(toString(info.kind))}};
  if (info.timeToLive) {
    json["ttlMs"] = countOf(*info.timeToLive);
  }
  json["holders"] = Json::array();
  for (const LockHolder& holder : info.holders) {
    json["holders"].push_back(toJson(holder));
  }
  json["waiters"] = info.waiters;
  if (info.available) {
    json["available"] = *info.available;
  }
  if (info.token) {
    json["token"] = *info.token;
  }
  return json;
}

std::string dumped(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string padded(const std::string& text, std::size_t width) {
  return text.size() >= width ? text : text + std::string(width - text.size(), ' ');
}

// Behind the character or escape sequence that begins there.
std::size_t pieceEnd(std::string_view text, std::size_t begin) {
  const std::string_view rest = text.substr(begin);
  const std::size_t length = rest.starts_with("\\x") ? 4 : rest.starts_with('\\') ? 2 : 1;
  return begin + std::min(length, rest.size());
}

std::string sinceText(const LockHolder& holder, std::chrono::sys_seconds now) {
  const auto since = parseLabel(holder.label).since;
  return since ? showDuration(now - *since) : "";
}

}  // namespace

std::string kindText(LockKind kind) {
  switch (kind) {
    case LockKind::lock:
      return "lock";
    case LockKind::fairLock:
      return "fair lock";
    case LockKind::fencedLock:
      return "fenced lock";
    case LockKind::readWriteLock:
      return "read-write lock";
    case LockKind::simpleLock:
      return "simple lock";
    case LockKind::counter:
      return "semaphore or latch";
    case LockKind::permitSemaphore:
      return "semaphore";
    default:
      return "not a lock";
  }
}

bool isFree(const std::optional<LockInfo>& info) {
  if (!info || !info->timeToLive) {
    return !info || info->holders.empty();
  }
  const bool counts = info->kind == LockKind::counter || info->kind == LockKind::permitSemaphore;
  return counts && info->holders.empty();
}

std::string abridged(std::string_view text, std::size_t width) {
  constexpr std::string_view kGap = "...";
  if (text.size() <= width) {
    return std::string(text);
  }
  if (width <= kGap.size()) {
    return std::string(kGap.substr(0, width));
  }
  const std::size_t room = width - kGap.size();
  std::size_t head = 0;
  while (pieceEnd(text, head) <= room - room / 2) {
    head = pieceEnd(text, head);
  }
  std::size_t tail = head;
  while (text.size() - tail > room - head) {
    tail = pieceEnd(text, tail);
  }
  return fmt::format("{}{}{}", text.substr(0, head), kGap, text.substr(tail));
}

std::string shownName(const LockInfo& info, std::size_t width) {
  return abridged(detail::escapeForDisplay(info.name, std::numeric_limits<std::size_t>::max()),
                  width);
}

std::string holderText(const LockHolder& holder) {
  if (holder.label.empty()) {
    return detail::escapeForDisplay(holder.owner);
  }
  const HolderLabel label = parseLabel(holder.label);
  std::string text = detail::escapeForDisplay(label.text);
  if (!label.since) {
    return text;
  }
  return fmt::format("{} ({}@{}, pid {})",
                     text,
                     detail::escapeForDisplay(label.user),
                     detail::escapeForDisplay(label.host),
                     label.pid);
}

std::string describeLock(const LockInfo& info, std::chrono::sys_seconds now, const Style& style) {
  std::string text = fmt::format(
      "{}  {}\n", style.bold(detail::escapeForDisplay(info.name)), style.dim(kindText(info.kind)));
  const auto line = [&text](const std::string& what, const std::string& value) {
    text += fmt::format("  {:<12}{}\n", what, value);
  };
  if (info.timeToLive) {
    line("lasts",
         *info.timeToLive == milliseconds::max() ? "without end"
                                                 : lifetimeText(info) + " unless renewed");
  }
  if (info.available) {
    line("available", std::to_string(*info.available));
  }
  if (info.token) {
    line("last token", std::to_string(*info.token));
  }
  for (const LockHolder& holder : info.holders) {
    std::string value = holderText(holder);
    const std::string since = sinceText(holder, now);
    if (!since.empty()) {
      value += ", for " + since;
    }
    if (holder.holds > 1) {
      value += fmt::format(", {} times", holder.holds);
    }
    if (holder.timeToLive && *holder.timeToLive != milliseconds::max()) {
      value += fmt::format(", {} left", showDuration(*holder.timeToLive));
    }
    line(holder.exclusive ? "held by" : "shared by", style.green(value));
    if (!holder.label.empty()) {
      line("", style.dim("owner " + detail::escapeForDisplay(holder.owner)));
    }
  }
  if (!info.waiters.empty()) {
    line("waiters",
         style.yellow(std::to_string(info.waiters.size())) + " in the queue of the server");
    for (const std::string& waiter : info.waiters) {
      line("", style.dim(detail::escapeForDisplay(waiter)));
    }
  }
  return text;
}

std::string tableOfLocks(const std::vector<LockInfo>& locks,
                         std::chrono::sys_seconds now,
                         const Style& style) {
  struct Row {
    std::string name, kind, left, since, holder;
    std::string waiters;
  };
  std::vector<Row> rows;
  std::size_t name = 4;
  std::size_t kind = 4;
  for (const LockInfo& info : locks) {
    Row row{shownName(info, 60), kindText(info.kind), lifetimeText(info), "", "-", ""};
    if (!info.holders.empty()) {
      row.holder = holderText(info.holders.front());
      row.since = sinceText(info.holders.front(), now);
      if (info.holders.size() > 1) {
        row.holder += fmt::format(" and {} more", info.holders.size() - 1);
      }
    }
    if (!info.waiters.empty()) {
      row.waiters = std::to_string(info.waiters.size());
    }
    name = std::max(name, row.name.size());
    kind = std::max(kind, row.kind.size());
    rows.push_back(std::move(row));
  }
  std::string text = style.bold(fmt::format("{}  {}  {:>7}  {:>7}  {:>4}  {}",
                                            padded("NAME", name),
                                            padded("KIND", kind),
                                            "LEFT",
                                            "HELD",
                                            "WAIT",
                                            "HOLDER")) +
                     "\n";
  for (const Row& row : rows) {
    text += fmt::format("{}  {}  {:>7}  {:>7}  {:>4}  {}\n",
                        padded(row.name, name),
                        padded(row.kind, kind),
                        row.left,
                        row.since,
                        row.waiters,
                        row.holder);
  }
  return text;
}

std::string jsonOfLock(const LockInfo& info) {
  return dumped(toJson(info));
}

std::string jsonOfLocks(const std::vector<LockInfo>& locks) {
  Json json = Json::array();
  for (const LockInfo& info : locks) {
    json.push_back(toJson(info));
  }
  return dumped(json);
}

}  // namespace rlock::cli
