// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/acquisition.hpp"
#include "cli/signal_inbox.hpp"
#include <rlock/lease.hpp>

namespace rlock::cli {

/// Gives the hold back and waits for the answer. Should the server not answer, a signal that asks
/// to end leaves it a second more, and the next one none: the program ends then, after a message.
/// @param code  its exit code in that case
/// @param key   SignalInbox::endGroupBy() is called with it in that case; 0: it is not
[[nodiscard]] ReleaseResult release(Held& held, const SignalInbox& signals, int code, int key);

/// Says that nobody knows whether the hold was given back, and when it is over in any case.
void tellThatReleaseIsUnknown(const Held& held);

}  // namespace rlock::cli
