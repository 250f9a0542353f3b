// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/unique_function.hpp>
#include <rlock/owner.hpp>
#include <rlock/result.hpp>

#include <cstdint>

namespace rlock::detail {

/// The source of the fencing tokens of one lock. The blocking and the background form are those of
/// LockBackend.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class TokenBackend {
 public:
  using Handler = UniqueFunction<void(Result<std::uint64_t>)>;

  TokenBackend() = default;
  TokenBackend(const TokenBackend&) = delete;
  TokenBackend& operator=(const TokenBackend&) = delete;
  virtual ~TokenBackend() = default;

  /// The token of this owner's hold; `notOwner` when it has none.
  virtual Result<std::uint64_t> token(OwnerId owner) = 0;
  virtual void tokenAsync(OwnerId owner, Handler handler) = 0;
};

}  // namespace rlock::detail
