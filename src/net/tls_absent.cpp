// SPDX-License-Identifier: Apache-2.0

// In place of TLS in a build without it (RLOCK_WITH_TLS=OFF).

#include "net/tls.hpp"
#include <rlock/error.hpp>

namespace rlock::detail::net {

std::function<std::unique_ptr<Stream>(int fd, const Endpoint& endpoint)> tlsStreams(
    const Options&, std::shared_ptr<const Logger>) {
  throw Error(Errc::invalidArgument,
              "rediss:// (option tls) needs TLS, which this build of rlock has not; configure it "
              "with -DRLOCK_WITH_TLS=ON");
}

}  // namespace rlock::detail::net
