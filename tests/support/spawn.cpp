// SPDX-License-Identifier: Apache-2.0
#include "support/spawn.hpp"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <linux/close_range.h>
#include <mutex>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace rlock::test {

namespace {

/// One thread that lives as long as the process, see spawnProcess().
class Spawner {
 public:
  explicit Spawner(pid_t owner) : owner_(owner) {
    std::thread([this] { work(); }).detach();
  }
  [[nodiscard]] pid_t owner() const { return owner_; }

  void run(const std::function<void()>& job) {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return job_ == nullptr; });
    job_ = &job;
    bool done = false;
    done_ = &done;
    changed_.notify_all();
    finished_.wait(lock, [&] { return done; });
  }

 private:
  [[noreturn]] void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return job_ != nullptr; });
      (*job_)();
      *done_ = true;
      job_ = nullptr;
      finished_.notify_all();
      idle_.notify_one();
    }
  }

  const pid_t owner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable finished_;
  std::condition_variable idle_;
  const std::function<void()>* job_ = nullptr;
  bool* done_ = nullptr;
};

Spawner& spawner() {
  static std::mutex mutex;
  static Spawner* current = nullptr;
  const std::lock_guard guard(mutex);
  // Never deleted, because its thread must not end before the process. A forked child has inherited
  // the object without the thread.
  if (current == nullptr || current->owner() != ::getpid()) {
    current = new Spawner(::getpid());
  }
  return *current;
}

std::vector<std::string> mergedEnvironment(const std::vector<std::string>& additions) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view prefix = text.substr(0, text.find('=') + 1);
    const bool replaced = std::any_of(additions.begin(), additions.end(), [&](const auto& added) {
      return std::string_view(added).substr(0, prefix.size()) == prefix;
    });
    if (!replaced) {
      merged.emplace_back(text);
    }
  }
  merged.insert(merged.end(), additions.begin(), additions.end());
  return merged;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (std::string& text : strings) {
    result.push_back(text.data());
  }
  result.push_back(nullptr);
  return result;
}

struct ChildPlan {
  pid_t parent;
  char* const* argv;
  char* const* environment;
  const char* workingDirectory;
  int descriptors[3];
  bool closeInherited;
  int errorPipe;
};

/// Runs between fork and exec in a process that had several threads: only async-signal-safe calls.
[[noreturn]] void becomeChild(const ChildPlan& plan) {
  const auto fail = [&] {
    const int error = errno;
    [[maybe_unused]] const ssize_t written = ::write(plan.errorPipe, &error, sizeof error);
    ::_exit(127);
  };
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    fail();
  }
  // The parent may have ended before the line above.
  if (::getppid() != plan.parent) {
    ::_exit(127);
  }
  int copies[3];
  for (int target = 0; target < 3; ++target) {
    int source = plan.descriptors[target];
    if (source < 0) {
      source = target == 0 ? ::open("/dev/null", O_RDONLY) : target;
    }
    // Above the targets, so that no copy overwrites another one's source.
    copies[target] = ::fcntl(source, F_DUPFD_CLOEXEC, 3);
    if (copies[target] < 0) {
      fail();
    }
  }
  for (int target = 0; target < 3; ++target) {
    if (::dup2(copies[target], target) < 0) {
      fail();
    }
  }
  if (plan.closeInherited) {
    ::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);
  }
  for (int signal = 1; signal < NSIG; ++signal) {
    ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (plan.workingDirectory != nullptr && ::chdir(plan.workingDirectory) != 0) {
    fail();
  }
  ::execvpe(plan.argv[0], plan.argv, plan.environment);
  fail();
  ::_exit(127);
}

}  // namespace

pid_t spawnProcess(const SpawnOptions& options) {
  std::vector<std::string> arguments = options.argv;
  std::vector<std::string> environment = mergedEnvironment(options.environment);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(environment);
  int errorPipe[2];
  if (::pipe2(errorPipe, O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "pipe2");
  }
  const ChildPlan plan{
      ::getpid(),
      argv.data(),
      envp.data(),
      options.workingDirectory.empty() ? nullptr : options.workingDirectory.c_str(),
      {options.standardInput, options.standardOutput, options.standardError},
      options.closeInheritedDescriptors,
      errorPipe[1]};
  pid_t pid = -1;
  int forkError = 0;
  spawner().run([&] {
    pid = ::fork();
    if (pid == 0) {
      becomeChild(plan);
    }
    forkError = errno;
  });
  ::close(errorPipe[1]);
  int childError = 0;
  ssize_t got = 0;
  if (pid > 0) {
    do {
      got = ::read(errorPipe[0], &childError, sizeof childError);
    } while (got < 0 && errno == EINTR);
  }
  ::close(errorPipe[0]);
  if (pid < 0) {
    throw std::system_error(forkError, std::generic_category(), "fork");
  }
  if (got > 0) {
    ::waitpid(pid, nullptr, 0);
    throw std::system_error(childError, std::generic_category(), "cannot start " + options.argv[0]);
  }
  return pid;
}

std::optional<ExitStatus> reapProcess(pid_t pid, std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  const int handle = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  std::optional<ExitStatus> result;
  int error = 0;
  while (true) {
    int status = 0;
    const pid_t reaped = ::waitpid(pid, &status, WNOHANG);
    if (reaped == pid) {
      result = WIFSIGNALED(status) ? ExitStatus{0, WTERMSIG(status)}
                                   : ExitStatus{WEXITSTATUS(status), 0};
      break;
    }
    if (reaped < 0 && errno != EINTR) {
      error = errno;
      break;
    }
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      break;
    }
    pollfd entry{handle, POLLIN, 0};
    const auto wait = handle >= 0 ? left : std::min(left, std::chrono::milliseconds(2));
    ::poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(wait.count(), 60'000)));
  }
  if (handle >= 0) {
    ::close(handle);
  }
  if (error != 0) {
    throw std::system_error(error, std::generic_category(), "waitpid " + std::to_string(pid));
  }
  return result;
}

void stopProcess(pid_t pid) {
  if (::kill(pid, SIGSTOP) != 0) {
    return;
  }
  siginfo_t info;
  // WNOWAIT: an exit is left for reapProcess().
  while (::waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WEXITED | WNOWAIT) != 0 &&
         errno == EINTR) {
  }
}

bool processExists(pid_t pid) {
  return ::kill(pid, 0) == 0 || errno == EPERM;
}

std::string selfExecutable() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

}  // namespace rlock::test
