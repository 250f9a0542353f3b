// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace contend {

struct WorkerOptions {
  int number = 1;
  std::filesystem::path directory;
  std::string uri;
  std::string lockName;
  std::chrono::milliseconds lease{1000};
  bool useLock = true;
};

/// Increments the counter under the lock, again and again, until the board says stop.
/// @returns the exit status of the process
int runWorker(const WorkerOptions& options);

}  // namespace contend
