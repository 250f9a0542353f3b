// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/executor/reply_error.hpp>
#include <rlock/error.hpp>

namespace rlock::detail {

/// The consequences of a refusal that no other form of the same request avoids, in this order.
struct ReplyVerdict {
  /// Another node is to be asked. Where that is not possible the rest decides.
  bool redirect = false;
  /// The knowledge of the nodes is out of date.
  bool outOfDate = false;
  /// The master has become a replica: the connection is to be left, and whatever led to it may lead
  /// to the new one by now.
  bool leave = false;
  /// The request goes out again after a pause; otherwise the call fails.
  bool retry = false;
};

/// Pure: any thread.
/// @param persistent  the call goes on while it is refused, see Call::setPersistent()
inline ReplyVerdict verdictOn(const ErrorClass& refusal, bool persistent) noexcept {
  const Errc errc = refusal.errc;
  return {.redirect = refusal.action == ErrorAction::redirect,
          .outOfDate = errc == Errc::readOnly || errc == Errc::connectionFailed,
          .leave = errc == Errc::readOnly,
          .retry = refusal.action == ErrorAction::retry ||
                   (persistent && errc != Errc::wrongType && errc != Errc::invalidArgument)};
}

}  // namespace rlock::detail
