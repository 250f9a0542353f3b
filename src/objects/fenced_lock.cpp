// SPDX-License-Identifier: Apache-2.0
#include "objects/acquisitions.hpp"
#include "objects/moved_from.hpp"
#include "objects/operations.hpp"
#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/base/token_backend.hpp>
#include <rlock/fenced_lock.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace rlock {

namespace {

using detail::Acquired;
using detail::AcquireParams;
using detail::acquisition;
using detail::inNameOfThread;
using detail::LockBackend;
using detail::operation;
using detail::params;
using detail::same;
using detail::TokenBackend;
using Token = std::uint64_t;

/// The token of the hold that was obtained. Race: the counter may be lost while a lost reply is
/// reconciled. A hold without a token is of no use and is given back.
Result<Token> tokenOf(LockBackend& lock, OwnerId owner, const detail::Grant& grant) {
  if (grant.token) {
    return *grant.token;
  }
  detail::ifThereIsMemorySoon([&] { lock.releaseQuietly({owner}); });
  ErrorContext context;
  context.key = lock.name();
  return Error(Errc::serverError, "the fencing counter is gone", std::move(context));
}

Operation<Token> locking(std::shared_ptr<LockBackend> lock, AcquireParams&& params) {
  const OwnerId owner = params.owner;
  return acquisition<Token>(lock, std::move(params), [lock, owner](Result<Acquired> result) {
    return detail::obtained<Token>(lock, std::move(result), [&](const detail::Grant& grant) {
      return tokenOf(*lock, owner, grant);
    });
  });
}

Operation<std::optional<Token>> trying(std::shared_ptr<LockBackend> lock, AcquireParams&& params) {
  const OwnerId owner = params.owner;
  return acquisition<std::optional<Token>>(
      lock,
      std::move(params),
      [lock, owner](const Result<Acquired>& result) -> Result<std::optional<Token>> {
        if (!result.has_value()) {
          return result.error();
        }
        if (!*result) {
          return std::optional<Token>();
        }
        const Result<Token> token = tokenOf(*lock, owner, **result);
        if (!token.has_value()) {
          return token.error();
        }
        return std::optional(*token);
      });
}

}  // namespace

FencedLock::FencedLock(std::shared_ptr<detail::LockBackend> lock,
                       std::shared_ptr<detail::TokenBackend> tokens) noexcept
    : RLock(lock), lock_(std::move(lock)), tokens_(std::move(tokens)) {}

std::uint64_t FencedLock::lockAndGetToken() {
  return lockAndGetTokenAsync(AcquireOptions{}, currentOwner()).get();
}

std::uint64_t FencedLock::lockAndGetToken(Duration lease) {
  return lockAndGetTokenAsync(lease, currentOwner()).get();
}

std::optional<std::uint64_t> FencedLock::tryLockAndGetToken() {
  return tryLockAndGetToken(Duration::zero());
}

std::optional<std::uint64_t> FencedLock::tryLockAndGetToken(Duration wait) {
  return tryLockAndGetTokenAsync(wait, {}, currentOwner()).get();
}

std::optional<std::uint64_t> FencedLock::tryLockAndGetToken(Duration wait, Duration lease) {
  return tryLockAndGetTokenAsync(wait, lease, currentOwner()).get();
}

std::uint64_t FencedLock::getToken() {
  return detail::present(tokens_)->token(currentOwner()).value();
}

Operation<std::uint64_t> FencedLock::lockAndGetTokenAsync(AcquireOptions options, OwnerId owner) {
  if (!lock_) {
    return detail::movedFrom<std::uint64_t>();
  }
  return locking(lock_, params(std::move(options), owner, Duration::max(), false));
}

ThreadOperation<std::uint64_t> FencedLock::lockAndGetTokenAsync(AcquireOptions options) {
  return inNameOfThread<Token>(
      lock_, [&](OwnerId owner) { return lockAndGetTokenAsync(std::move(options), owner); });
}

Operation<std::optional<std::uint64_t>> FencedLock::tryLockAndGetTokenAsync(AcquireOptions options,
                                                                            OwnerId owner) {
  if (!lock_) {
    return detail::movedFrom<std::optional<std::uint64_t>>();
  }
  return trying(lock_, params(std::move(options), owner, Duration::zero(), false));
}

ThreadOperation<std::optional<std::uint64_t>> FencedLock::tryLockAndGetTokenAsync(
    AcquireOptions options) {
  return inNameOfThread<std::optional<Token>>(
      lock_, [&](OwnerId owner) { return tryLockAndGetTokenAsync(std::move(options), owner); });
}

Operation<std::uint64_t> FencedLock::getTokenAsync(OwnerId owner) {
  if (!tokens_) {
    return detail::movedFrom<std::uint64_t>();
  }
  return operation<Token, Token>([tokens = tokens_, owner] { return tokens->token(owner); },
                                 [tokens = tokens_, owner](TokenBackend::Handler handler) {
                                   tokens->tokenAsync(owner, std::move(handler));
                                 },
                                 same<Token>);
}

}  // namespace rlock
