// SPDX-License-Identifier: Apache-2.0
// Other processes that take part in a measurement, and the memory they share.
#pragma once

#include "bench.hpp"
#include "measure.hpp"

#include <atomic>
#include <cstdint>
#include <string_view>
#include <sys/types.h>

namespace rlock::bench {

struct Shared {
  enum Phase : std::uint32_t { idle, held, asking, done };
  static constexpr std::size_t kMost = std::size_t{1} << 17;

  std::atomic<bool> ready;
  std::atomic<bool> stop;
  std::atomic<std::uint32_t> phase;
  std::atomic<std::int64_t> stamp;  ///< when the other side began what is measured
  std::atomic<std::size_t> count;
  std::atomic<std::uint32_t> samples[kMost];

  void add(std::int64_t nanoseconds);
};

class SharedMemory {
 public:
  SharedMemory();
  explicit SharedMemory(int descriptor);
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  Shared* operator->() const { return shared_; }
  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] Samples samples() const;

 private:
  int descriptor_;
  Shared* shared_;
};

/// This program once more, in a role that runChild() knows. Ended by the kernel with this process
/// and by the destructor.
class Child {
 public:
  Child(std::string_view role, const SharedMemory& memory, const Context& context);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  [[nodiscard]] bool running();

 private:
  pid_t pid_ = -1;
};

}  // namespace rlock::bench
