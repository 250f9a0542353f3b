// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/loop.hpp"
#include <rlock/detail/base/unique_function.hpp>

#include <chrono>
#include <memory>
#include <netdb.h>
#include <string>

namespace rlock::detail::net {

/// The answer of the system's resolver.
struct NameAnswer {
  /// Empty: `addresses` is the answer.
  std::string error{};
  std::shared_ptr<const addrinfo> addresses{};
};

/// Asks the system's resolver for one name, in a thread of the library's own.
///
/// The resolver can be neither interrupted nor given a time limit. One that hangs holds up nobody:
/// not the loop, not other names, not the end of the process, which does not wait for it. Callers
/// that ask for the same name meanwhile share one lookup; when that takes very long another one is
/// started beside it, a few at most.
///
/// **Thread safety:** loop thread only.
class NameLookup {
 public:
  using Handler = UniqueFunction<void(const NameAnswer&)>;

  /// After this long a lookup may never come back, or only with what its name server does not know:
  /// the next one to ask starts another.
  static constexpr std::chrono::milliseconds kPatience{5000};

  /// Calls the handler once on the loop, never inside the constructor, unless this object is
  /// destroyed before. An answer that no memory is left to deliver does not come.
  /// @param patience            for the lookup that was started last for this name
  /// @throws std::system_error  when the process has no threads left
  NameLookup(Loop& loop,
             const std::string& host,
             Handler handler,
             std::chrono::milliseconds patience = kPatience);

 private:
  std::shared_ptr<Handler> handler_;
};

}  // namespace rlock::detail::net
