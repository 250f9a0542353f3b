// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>

/// The server an example talks to: its first argument, else RLOCK_URI, else a local Redis.
inline std::string serverUri(int argc, char** argv) {
  if (argc > 1) {
    return argv[1];
  }
  const char* uri = std::getenv("RLOCK_URI");
  return uri != nullptr ? uri : "redis://127.0.0.1:6379";
}
