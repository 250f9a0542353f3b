// SPDX-License-Identifier: Apache-2.0
#include "support/child_process.hpp"

#include "support/eventually.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <stdexcept>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace rlock::test {

namespace {

std::string tail(const std::vector<std::string>& lines) {
  constexpr std::size_t kShown = 20;
  std::string text;
  const std::size_t first = lines.size() > kShown ? lines.size() - kShown : 0;
  for (std::size_t i = first; i < lines.size(); ++i) {
    text += "\n  | " + lines[i];
  }
  return text.empty() ? " (it printed nothing)" : ", it printed:" + text;
}

}  // namespace

ChildProcess::ChildProcess(const std::string& executable,
                           const std::vector<std::string>& args,
                           const Options& options)
    : owner_(::getpid()) {
  // A socket pair for the input, because writing to a pipe of a dead child raises SIGPIPE.
  std::array<int, 2> input{-1, -1};
  std::array<int, 2> output{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input.data()) != 0) {
    throw std::system_error(errno, std::generic_category(), "socketpair");
  }
  if (::pipe2(output.data(), O_CLOEXEC) != 0) {
    const int error = errno;
    ::close(input[0]);
    ::close(input[1]);
    throw std::system_error(error, std::generic_category(), "pipe2");
  }
  ::shutdown(input[0], SHUT_RD);
  SpawnOptions spawn;
  spawn.argv = {executable};
  spawn.argv.insert(spawn.argv.end(), args.begin(), args.end());
  spawn.environment = options.environment;
  spawn.workingDirectory = options.workingDirectory;
  spawn.standardInput = input[1];
  spawn.standardOutput = output[1];
  spawn.standardError = options.mergeStandardError ? output[1] : -1;
  spawn.closeInheritedDescriptors = options.closeInheritedDescriptors;
  try {
    pid_ = spawnProcess(spawn);
  } catch (...) {
    for (const int fd : {input[0], input[1], output[0], output[1]}) {
      ::close(fd);
    }
    throw;
  }
  ::close(input[1]);
  ::close(output[1]);
  input_ = input[0];
  output_ = output[0];
  ::fcntl(output_, F_SETFL, O_NONBLOCK);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      owner_(other.owner_),
      input_(std::exchange(other.input_, -1)),
      output_(std::exchange(other.output_, -1)),
      status_(std::exchange(other.status_, {})),
      buffer_(std::move(other.buffer_)),
      linesRead_(std::move(other.linesRead_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this != &other) {
    finish();
    pid_ = std::exchange(other.pid_, -1);
    owner_ = other.owner_;
    input_ = std::exchange(other.input_, -1);
    output_ = std::exchange(other.output_, -1);
    status_ = std::exchange(other.status_, {});
    buffer_ = std::move(other.buffer_);
    linesRead_ = std::move(other.linesRead_);
  }
  return *this;
}

ChildProcess::~ChildProcess() {
  finish();
}

void ChildProcess::finish() noexcept {
  if (pid_ > 0 && owner_ == ::getpid() && !status_) {
    ::kill(pid_, SIGKILL);
    try {
      status_ = reapProcess(pid_, std::chrono::milliseconds(10'000));
    } catch (const std::system_error&) {
      // Somebody else has reaped it, which is all this needs.
    }
  }
  closeInput();
  if (output_ >= 0) {
    ::close(std::exchange(output_, -1));
  }
}

bool ChildProcess::running() {
  if (pid_ > 0 && !status_) {
    status_ = reapProcess(pid_, std::chrono::milliseconds(0));
  }
  return pid_ > 0 && !status_;
}

void ChildProcess::send(std::string_view line) {
  std::string bytes(line);
  bytes += '\n';
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = ::send(input_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      throw std::runtime_error("child process takes no input" + tail(linesRead_));
    }
    sent += static_cast<std::size_t>(n);
  }
}

void ChildProcess::closeInput() {
  if (input_ >= 0) {
    ::close(std::exchange(input_, -1));
  }
}

std::optional<std::string> ChildProcess::readLine(std::chrono::milliseconds deadline) {
  const Deadline end(deadline);
  while (true) {
    const std::size_t newline = buffer_.find('\n');
    if (newline != std::string::npos) {
      linesRead_.push_back(buffer_.substr(0, newline));
      buffer_.erase(0, newline + 1);
      return linesRead_.back();
    }
    char chunk[4096];
    const ssize_t n = ::read(output_, chunk, sizeof chunk);
    if (n > 0) {
      buffer_.append(chunk, static_cast<std::size_t>(n));
      continue;
    }
    if (n == 0) {
      if (buffer_.empty()) {
        return std::nullopt;
      }
      linesRead_.push_back(std::exchange(buffer_, {}));
      return linesRead_.back();
    }
    if (errno == EINTR) {
      continue;
    }
    if (errno != EAGAIN || end.expired()) {
      return std::nullopt;
    }
    pollfd entry{output_, POLLIN, 0};
    ::poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(end.remaining().count(), 60'000)));
  }
}

std::string ChildProcess::expectLine(std::chrono::milliseconds deadline) {
  if (auto line = readLine(deadline)) {
    return *std::move(line);
  }
  throw std::runtime_error("no line from the child process within " +
                           std::to_string(deadline.count()) + " ms" + tail(linesRead_));
}

std::string ChildProcess::expectLineContaining(std::string_view substring,
                                               std::chrono::milliseconds deadline) {
  const Deadline end(deadline);
  while (true) {
    // remaining() is scaled already.
    const auto left = std::chrono::milliseconds(
        static_cast<std::int64_t>(static_cast<double>(end.remaining().count()) / timeFactor()));
    const auto line = readLine(left);
    if (!line) {
      throw std::runtime_error("no line with '" + std::string(substring) +
                               "' from the child process within " +
                               std::to_string(deadline.count()) + " ms" + tail(linesRead_));
    }
    if (line->find(substring) != std::string::npos) {
      return *line;
    }
  }
}

void ChildProcess::kill(int signal) {
  if (pid_ > 0) {
    ::kill(pid_, signal);
  }
}

void ChildProcess::stop() {
  if (pid_ > 0) {
    stopProcess(pid_);
  }
}

void ChildProcess::cont() {
  kill(SIGCONT);
}

std::optional<ExitStatus> ChildProcess::wait(std::chrono::milliseconds deadline) {
  if (pid_ > 0 && !status_) {
    status_ = reapProcess(pid_, scaled(deadline));
  }
  return status_;
}

}  // namespace rlock::test
