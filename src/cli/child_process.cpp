// SPDX-License-Identifier: Apache-2.0

// The descriptors and the environment that a command inherits, and below them the command: how it
// is started, signalled and reaped. Everything that needs memory is made before fork(), because
// other threads of this process may be in the midst of anything: the child calls only what is safe
// there. A pipe that a successful exec closes tells the parent whether the command could be
// started.
#include "cli/child_process.hpp"

#include "cli/exit_codes.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

extern char** environ;  // NOLINT(readability-redundant-declaration): not every libc declares it

namespace rlock::cli {

namespace {

std::set<int> openDescriptors() {
  std::set<int> open;
  DIR* const listing = ::opendir("/proc/self/fd");
  if (listing == nullptr) {
    return {0, 1, 2};
  }
  const int own = ::dirfd(listing);
  while (const dirent* const entry = ::readdir(listing)) {
    char* end = nullptr;
    const long number = std::strtol(entry->d_name, &end, 10);
    if (*end == '\0' && end != entry->d_name && number != own) {
      open.insert(static_cast<int>(number));
    }
  }
  ::closedir(listing);
  return open;
}

std::vector<std::string> environmentWith(const std::vector<std::string>& added) {
  std::vector<std::string> result;
  for (const std::string& entry : added) {
    if (entry.find('=') != std::string::npos) {
      result.push_back(entry);
    }
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    bool replaced = false;
    for (const std::string& other : added) {
      replaced |= std::string_view(other).substr(0, other.find('=')) == name;
    }
    if (!replaced) {
      result.emplace_back(text);
    }
  }
  return result;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const std::string& text : texts) {
    result.push_back(const_cast<char*>(text.c_str()));
  }
  result.push_back(nullptr);
  return result;
}

}  // namespace

InheritedDescriptors::InheritedDescriptors() : open_(openDescriptors()) {}

void InheritedDescriptors::keepOthersFromChildren() const {
  for (const int descriptor : openDescriptors()) {
    if (!open_.contains(descriptor)) {
      const int flags = ::fcntl(descriptor, F_GETFD);
      if (flags >= 0) {
        ::fcntl(descriptor, F_SETFD, flags | FD_CLOEXEC);
      }
    }
  }
}

ChildProcess::ChildProcess(const ChildSettings& settings,
                           const SignalInbox& signals,
                           const InheritedDescriptors& inherited,
                           const TerminalLoan& terminal,
                           Guardian& guardian)
    : guardian_(guardian), terminal_(terminal), ownGroup_(settings.ownGroup) {
  const std::vector<std::string> environment = environmentWith(settings.environment);
  const std::vector<char*> argv = pointers(settings.argv);
  const std::vector<char*> envp = pointers(environment);
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "pipe");
  }
  Descriptor read(ends[0]);
  Descriptor write(ends[1]);
  Descriptor null;
  if (settings.noInput) {
    null = Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!null) {
      throw std::system_error(errno, std::generic_category(), "/dev/null");
    }
  }
  inherited.keepOthersFromChildren();

  const pid_t parent = ::getpid();
  const bool lent = terminal.ours();
  pid_ = ::fork();
  if (pid_ < 0) {
    throw std::system_error(errno, std::generic_category(), "fork");
  }
  if (pid_ == 0) {
    // Only what is safe after a fork() of a process with threads, until exec.
    const pid_t own = ::getpid();
    if (ownGroup_) {
      ::setpgid(0, 0);
    }
    guardian.setTarget(ownGroup_ ? -own : own);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) {
      // Race: the parent was killed before the kernel knew that we want to hear of it.
      ::_exit(numberOfSignal(SIGTERM));
    }
    if (lent) {
      terminal.lend(own);
    }
    if (guardian.killTimeHasCome()) {
      // We were stopped, or got no processor, since the lock was obtained.
      ::_exit(number(ExitCode::lost));
    }
    if (null) {
      ::dup2(null.get(), STDIN_FILENO);
    }
    if (settings.descriptor >= 0) {
      ::fcntl(settings.descriptor, F_SETFD, 0);
    }
    signals.restoreInChild();
    ::execvpe(argv[0], argv.data(), envp.data());
    const int error = errno;
    if (::write(write.get(), &error, sizeof error) < 0) {
      // The parent is gone.
    }
    ::_exit(number(ExitCode::notFound));
  }
  if (ownGroup_) {
    // Race: a signal may have to be passed on before the child has come that far.
    ::setpgid(pid_, pid_);
  }
  guardian.setTarget(ownGroup_ ? -pid_ : pid_);
  if (lent) {
    terminal.lend(pid_);
  }
  write.close();
  int error = 0;
  ssize_t got = 0;
  do {
    got = ::read(read.get(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof error)) {
    guardian.setTarget(0);
    reap();
    throw CannotStart(fmt::format("{}: {}", settings.argv.front(), std::strerror(error)), error);
  }
}

ChildProcess::~ChildProcess() {
  if (!reaped_) {
    send(SIGKILL);
    guardian_.setTarget(0);
    reap();
  }
}

bool ChildProcess::send(int signal) const noexcept {
  return ::kill(ownGroup_ ? -pid_ : pid_, signal) == 0 || errno != EPERM;
}

std::optional<ChildProcess::Change> ChildProcess::change() {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
      info.si_pid == pid_) {
    return info.si_code == CLD_EXITED
               ? Change{false, info.si_status, 0}
               : Change{false, numberOfSignal(info.si_status), info.si_status};
  }
  info = {};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOHANG) == 0 &&
      info.si_pid == pid_) {
    return Change{true, 0, info.si_status};
  }
  return std::nullopt;
}

void ChildProcess::reap() noexcept {
  terminal_.takeBack(pid_);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
}

}  // namespace rlock::cli
