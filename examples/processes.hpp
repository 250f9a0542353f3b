// SPDX-License-Identifier: Apache-2.0
// The examples of several processes share this: the processes, waits that end, and lines that do
// not mix.
#pragma once

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <random>
#include <stdexcept>
#include <string>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

/// One write, so that lines of several processes do not mix.
inline void say(const std::string& line) {
  std::cout << line + '\n' << std::flush;
}

/// A name of this run's own, so that two runs on one server do not meet.
inline std::string uniqueName(const std::string& prefix) {
  std::random_device random;
  return prefix + ":" + std::to_string(random()) + std::to_string(random());
}

/// Waits until the condition holds. A machine may be busy, so the limit is long; it is there to end
/// the program with a word when something is wrong.
inline void waitUntil(const std::string& what, const std::function<bool()>& condition) {
  using namespace std::chrono_literals;
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) {
      throw std::runtime_error("waited 20 s in vain: " + what);
    }
    std::this_thread::sleep_for(5ms);
  }
}

/// Another process that runs this program, with these arguments. It ends with this object or with
/// the process that made it, whatever ends that. It finds the server in RLOCK_URI.
class Process {
 public:
  explicit Process(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "/proc/self/exe");
    std::vector<char*> words;
    for (std::string& argument : arguments) {
      words.push_back(argument.data());
    }
    words.push_back(nullptr);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) {
      throw std::system_error(errno, std::generic_category(), "fork");
    }
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() == parent) {
        ::execv(words[0], words.data());
      }
      ::_exit(127);
    }
  }
  Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Process& operator=(Process&&) = delete;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() { kill(); }

  /// Ends the process as a crash would: it cannot clean up.
  void kill() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(std::exchange(pid_, -1), nullptr, 0);
    }
  }

  /// Makes the process stand still, as one that is swapped out or whose machine is moved.
  void freeze() {
    ::kill(pid_, SIGSTOP);
    awaitFrozen();
  }
  /// Waits until the process stands still, which it may have done by itself.
  void awaitFrozen() {
    int status = 0;
    waitUntil("a process stands still", [&] { return reported(&status, WUNTRACED); });
    if (!WIFSTOPPED(status)) {
      pid_ = -1;
      throw std::runtime_error("a process ended instead of standing still");
    }
  }
  void resume() { ::kill(pid_, SIGCONT); }

  /// Waits for the end. @returns the exit status, or 128 and the signal's number
  int wait() {
    int status = 0;
    waitUntil("a process ends", [&] { return reported(&status, 0); });
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  [[nodiscard]] bool reported(int* status, int what) const {
    return ::waitpid(pid_, status, what | WNOHANG) == pid_;
  }

  pid_t pid_ = -1;
};
