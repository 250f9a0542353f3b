// SPDX-License-Identifier: Apache-2.0
#include <rlock/rlock.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

std::string_view versionSeenElsewhere();

int main() {
  // An exception must be caught by its type although the library that throws it hides its symbols.
  try {
    (void)rlock::Options::fromUri("nonsense://localhost");
    std::fputs("an unknown scheme was accepted\n", stderr);
    return EXIT_FAILURE;
  } catch (const rlock::Error& error) {
    if (error.code() != rlock::Errc::invalidArgument) {
      std::fprintf(stderr, "unexpected error: %s\n", error.what());
      return EXIT_FAILURE;
    }
  }
  if (rlock::version() != versionSeenElsewhere()) {
    return EXIT_FAILURE;
  }

  const char* uri = std::getenv("RLOCK_URI");
  if (uri == nullptr) {
    std::fputs("RLOCK_URI is not set\n", stderr);
    return EXIT_FAILURE;
  }
  rlock::Client client = rlock::Client::connect(uri);
  rlock::RLock lock = client.getLock("package-test");
  if (!lock.tryLock(std::chrono::seconds(5), std::chrono::seconds(30))) {
    std::fputs("the lock was not obtained\n", stderr);
    return EXIT_FAILURE;
  }
  lock.unlock();
  std::printf("rlock %s works\n", RLOCK_VERSION_STRING);
  return EXIT_SUCCESS;
}
