// SPDX-License-Identifier: Apache-2.0
#include "support/hanging_names.hpp"

#include <atomic>
#include <chrono>
#include <dlfcn.h>
#include <netdb.h>
#include <string>
#include <string_view>
#include <thread>

namespace rlock::test {
namespace {

constinit std::atomic<bool> hangs{true};
constinit std::atomic<int> begunCount{0};
constinit std::atomic<int> runningCount{0};
constinit std::atomic<int> movedTo{1};

}  // namespace

HangingNames::HangingNames() noexcept {
  begunCount = 0;
  hangs = true;
}

HangingNames::~HangingNames() {
  release();
}

void HangingNames::release() noexcept {
  hangs = false;
}

int HangingNames::begun() noexcept {
  return begunCount;
}

int HangingNames::running() noexcept {
  return runningCount;
}

void moveNames(int host) noexcept {
  movedTo = host;
}

}  // namespace rlock::test

// The linker prefers the program's own to the C library's.
extern "C" int getaddrinfo(const char* name,
                           const char* service,
                           const addrinfo* hints,
                           addrinfo** result) {
  using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  const auto real = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  if (name != nullptr && std::string_view(name).ends_with(".two.test")) {
    const int status = real("127.0.0.2", service, hints, result);
    addrinfo* last = status == 0 ? *result : nullptr;
    while (last != nullptr && last->ai_next != nullptr) {
      last = last->ai_next;
    }
    return last == nullptr ? status : real("127.0.0.1", service, hints, &last->ai_next);
  }
  using namespace rlock::test;
  if (name != nullptr && std::string_view(name).ends_with(".moves.test")) {
    return real(("127.0.0." + std::to_string(movedTo)).c_str(), service, hints, result);
  }
  if (name == nullptr || !std::string_view(name).ends_with(".hangs.test")) {
    return real(name, service, hints, result);
  }
  ++begunCount;
  ++runningCount;
  while (hangs) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const int status = real("127.0.0.1", service, hints, result);
  --runningCount;
  return status;
}
