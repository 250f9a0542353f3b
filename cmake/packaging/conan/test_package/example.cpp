// SPDX-License-Identifier: Apache-2.0
#include <rlock/rlock.hpp>

#include <cstdio>

// There is no server where a package is built: a wrong address is refused without one.
int main() {
  try {
    (void)rlock::Client::connect("nonsense://localhost");
  } catch (const rlock::Error& error) {
    std::printf("rlock %s: %s\n", RLOCK_VERSION_STRING, error.what());
    return error.code() == rlock::Errc::invalidArgument ? 0 : 1;
  }
  return 1;
}
