// SPDX-License-Identifier: Apache-2.0
// Writes down when the host stood still, as long as the process that started it lives.
//
// Usage: rlock_host_watch FILE
//
// A line of FILE is a time in which this program, which wants the processor every 20 ms for next to
// nothing, did not get it: begin and end, in ms of the monotonic clock. It prints "watching" once
// it is.
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <unistd.h>

namespace {

constexpr std::int64_t kEvery = 20;
constexpr std::int64_t kStoodStill = 400;

std::int64_t nowMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000 + now.tv_nsec / 1'000'000;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: rlock_host_watch FILE\n", stderr);
    return 2;
  }
  std::FILE* const file = std::fopen(argv[1], "ae");
  if (file == nullptr) {
    std::fprintf(stderr, "rlock_host_watch: %s: %s\n", argv[1], std::strerror(errno));
    return 1;
  }
  const pid_t parent = getppid();
  std::int64_t last = nowMs();
  std::puts("watching");
  std::fflush(stdout);
  while (getppid() == parent) {
    usleep(kEvery * 1'000);
    const std::int64_t now = nowMs();
    if (now - last > kStoodStill) {
      std::fprintf(file, "%lld %lld\n", static_cast<long long>(last), static_cast<long long>(now));
      std::fflush(file);
    }
    last = now;
  }
  std::fclose(file);
}
