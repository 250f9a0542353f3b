// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/acquisition.hpp"
#include "cli/descriptor.hpp"
#include <rlock/lease.hpp>

#include <chrono>
#include <string>
#include <sys/types.h>

namespace rlock::cli {

/// Tells programs what becomes of a lock and its command: as events, one JSON object a line, to a
/// descriptor that our caller has opened; and as a pipe for the command, whose end tells that the
/// lock is not to be relied on any more.
///
/// Nothing here waits: an event that the descriptor does not take at once is dropped. The command
/// does not inherit that descriptor unless it is one of the standard streams. The pipe ends with
/// this process in any case, also when that is killed.
///
/// One thread. Made after the guardian, which would keep the pipe open.
class Announcer {
 public:
  /// @param events  the descriptor for events; 0: nobody listens
  /// @param loss    whether there is a pipe
  /// @throws std::system_error
  Announcer(int events, bool loss);

  /// The end of the pipe that the command reads; -1: there is none.
  [[nodiscard]] int lossDescriptor() const noexcept { return lossRead_.get(); }

  void held(const Held& held, std::chrono::milliseconds waited) noexcept;
  void started(pid_t process) noexcept;
  /// The command is told to end.
  void ending() noexcept;
  void lost(LossReason reason) noexcept;
  void ended(int code) noexcept;
  /// The lock is about to be given back. The answer may be late, and another has it then.
  void releasing() noexcept { lossWrite_.close(); }
  void released(ReleaseResult result) noexcept;
  /// @param byCommand  whether it is the command's own code
  void exiting(int code, bool byCommand) noexcept;

 private:
  template <class... Values>
  void tell(const char* format, const Values&... values) noexcept;

  int events_;
  Descriptor lossRead_;
  Descriptor lossWrite_;
};

/// Whether our caller has opened that descriptor for writing.
[[nodiscard]] bool takesEvents(int descriptor) noexcept;

}  // namespace rlock::cli
