// SPDX-License-Identifier: Apache-2.0
#include "cli/cli_harness.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

namespace rlock::test {

std::string cliProgram() {
  return RLOCK_TEST_CLI;
}

ChildProcess startCli(const std::string& uri,
                      const std::vector<std::string>& args,
                      std::vector<std::string> environment) {
  ChildProcess::Options options;
  options.environment = std::move(environment);
  options.environment.push_back("RLOCK_URI=" + uri);
  options.environment.emplace_back("XDG_CONFIG_HOME=/nonexistent");
  options.environment.emplace_back("RLOCK_CONFIG=");
  options.mergeStandardError = true;
  return ChildProcess(cliProgram(), args, options);
}

CliOutcome finish(ChildProcess& process) {
  process.closeInput();
  CliOutcome outcome;
  while (process.readLine(kLong)) {
  }
  for (const std::string& line : process.linesRead()) {
    outcome.output += line + "\n";
  }
  const auto status = process.wait(kLong);
  if (status) {
    outcome.code = status->signal != 0 ? 128 + status->signal : status->code;
  }
  return outcome;
}

CliOutcome runCli(const std::string& uri,
                  const std::vector<std::string>& args,
                  std::vector<std::string> environment) {
  ChildProcess process = startCli(uri, args, std::move(environment));
  return finish(process);
}

char processState(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) {
    return 0;
  }
  const std::size_t state = line.rfind(") ");
  return state == std::string::npos ? 0 : line[state + 2];
}

bool alive(pid_t pid) {
  const char state = processState(pid);
  return state != 0 && state != 'Z' && state != 'X';
}

std::vector<pid_t> childrenOf(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) {
      continue;
    }
    std::ifstream file(entry.path() / "stat");
    std::string line;
    std::getline(file, line);
    // After the program's name, which may be anything, come the state and the parent.
    const std::size_t state = line.rfind(") ");
    std::istringstream fields(state == std::string::npos ? "" : line.substr(state + 3));
    pid_t itsParent = 0;
    if (fields >> itsParent && itsParent == parent) {
      children.push_back(std::stoi(name));
    }
  }
  return children;
}

bool signalPending(pid_t pid, int signal) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    // The signals of the process, as a number in hexadecimal.
    if (line.starts_with("ShdPnd:")) {
      return ((std::stoull(line.substr(7), nullptr, 16) >> (signal - 1)) & 1) != 0;
    }
  }
  return false;
}

}  // namespace rlock::test
