// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.hpp"
#include "cli/connection.hpp"
#include "cli/exit_codes.hpp"
#include "cli/lock_text.hpp"

#include <fmt/format.h>

#include <cstddef>

namespace rlock::cli {

namespace {

/// LockInfo::holders has no more.
constexpr std::size_t kListed = 1000;

bool freed(Client& client, const LockInfo& info) {
  switch (info.kind) {
    case LockKind::lock:
      return client.getLock(info.name).forceUnlock();
    case LockKind::fairLock:
      return client.getFairLock(info.name).forceUnlock();
    case LockKind::fencedLock:
      return client.getFencedLock(info.name).forceUnlock();
    case LockKind::simpleLock:
      return client.getSimpleLock(info.name).forceUnlock();
    case LockKind::readWriteLock: {
      const ReadWriteLock lock = client.getReadWriteLock(info.name);
      const bool writer = lock.writeLock().forceUnlock();
      return lock.readLock().forceUnlock() || writer;
    }
    case LockKind::permitSemaphore: {
      auto semaphore = client.getPermitExpirableSemaphore(info.name);
      bool any = false;
      for (const LockHolder& holder : info.holders) {
        any |= semaphore.tryRelease(holder.owner);
      }
      return any;
    }
    default:
      throw Error(Errc::wrongType,
                  fmt::format("\"{}\" is no lock that somebody holds ({})",
                              detail::escapeForDisplay(info.name),
                              kindText(info.kind)));
  }
}

}  // namespace

int unlockCommand(const Arguments& arguments) {
  Client client = connectClient(arguments);
  auto info = client.inspect(arguments.lock.name);
  if (isFree(info)) {
    complain(fmt::format("\"{}\" is free", detail::escapeForDisplay(arguments.lock.name)));
    return number(ExitCode::failure);
  }
  bool any = false;
  for (bool more = true; more;) {
    const bool now = freed(client, *info);
    for (const LockHolder& holder : info->holders) {
      fmt::print("{} {}\n", now ? "freed from" : "no longer held by", holderText(holder));
    }
    any = any || now;
    // Of the permits of a semaphore only so many are listed at a time.
    more = now && info->kind == LockKind::permitSemaphore && info->holders.size() >= kListed;
    if (more) {
      info = client.inspect(arguments.lock.name);
      more = !isFree(info);
    }
  }
  return number(any ? ExitCode::success : ExitCode::failure);
}

}  // namespace rlock::cli
