// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/child_process.hpp"
#include "support/spawn.hpp"

#include <chrono>
#include <cstdlib>
#include <string>

namespace rlock::test {

/// Where the programs that tests start are.
[[nodiscard]] inline std::string testProgram(const std::string& name) {
  const char* directory = std::getenv("RLOCK_TEST_PROGRAM_DIR");
  if (directory != nullptr) {
    return std::string(directory) + "/" + name;
  }
  const std::string self = selfExecutable();
  return self.substr(0, self.find_last_of('/') + 1) + name;
}

/// tests/support/lock_worker.cpp, one command a line.
class Worker {
 public:
  explicit Worker(const std::string& uri) : process_(testProgram("rlock_lock_worker"), {uri}) {
    clientId_ = process_.expectLineContaining("id ", kAnswer / 2).substr(3);
  }

  /// The client's UUID.
  [[nodiscard]] const std::string& clientId() const { return clientId_; }
  [[nodiscard]] ChildProcess& process() { return process_; }
  /// Sends a command and returns its answer.
  std::string ask(const std::string& command) {
    process_.send(command);
    return answer();
  }
  void tell(const std::string& command) { process_.send(command); }
  std::string answer() { return process_.expectLine(kAnswer); }

 private:
  static constexpr std::chrono::milliseconds kAnswer{30'000};

  ChildProcess process_;
  std::string clientId_;
};

}  // namespace rlock::test
