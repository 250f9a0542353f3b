// SPDX-License-Identifier: Apache-2.0
#include "child.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace rlock::bench {

namespace {

Shared* map(int descriptor) {
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(), "mmap");
  }
  return static_cast<Shared*>(memory);
}

int create() {
  const int descriptor = ::memfd_create("rlock-bench", 0);
  if (descriptor < 0 || ::ftruncate(descriptor, sizeof(Shared)) != 0) {
    throw std::system_error(errno, std::generic_category(), "memfd_create");
  }
  return descriptor;
}

}  // namespace

void Shared::add(std::int64_t nanoseconds) {
  const std::size_t index = count.load();
  if (index < kMost) {
    samples[index] = static_cast<std::uint32_t>(
        std::clamp<std::int64_t>(nanoseconds, 0, std::numeric_limits<std::uint32_t>::max()));
    count = index + 1;
  }
}

SharedMemory::SharedMemory() : descriptor_(create()), shared_(map(descriptor_)) {}

SharedMemory::SharedMemory(int descriptor) : descriptor_(descriptor), shared_(map(descriptor)) {}

SharedMemory::~SharedMemory() {
  ::munmap(shared_, sizeof(Shared));
  ::close(descriptor_);
}

Samples SharedMemory::samples() const {
  Samples samples;
  for (std::size_t i = 0; i < shared_->count; ++i) {
    samples.add(shared_->samples[i]);
  }
  return samples;
}

Child::Child(std::string_view role, const SharedMemory& memory, const Context& context) {
  ::setenv("RLOCK_URI", context.uri.c_str(), 1);  // not as an argument: it may hold a password
  std::vector<std::string> words{
      "rlock_bench", "--child", std::string(role), std::to_string(memory.descriptor())};
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);

  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) {
    throw std::system_error(errno, std::generic_category(), "fork");
  }
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() == parent) {
      ::execv("/proc/self/exe", arguments.data());
    }
    ::_exit(127);
  }
}

Child::~Child() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

bool Child::running() {
  if (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == pid_) {
    pid_ = -1;
  }
  return pid_ > 0;
}

}  // namespace rlock::bench
