// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace rlock::test {

/// A private directory (mode 0700) under `$TMPDIR` or `/tmp`, removed with its content by the
/// destructor, unless that runs in a forked child. Move-only.
class TempDir {
 public:
  explicit TempDir(std::string_view prefix = "rlock-test") {
    std::string pattern = base() + "/" + std::string(prefix) + "-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw std::system_error(errno, std::generic_category(), "mkdtemp " + pattern);
    }
    path_ = pattern;
  }
  TempDir(TempDir&& other) noexcept : path_(std::exchange(other.path_, {})), owner_(other.owner_) {}
  TempDir& operator=(TempDir&& other) noexcept {
    if (this != &other) {
      remove();
      path_ = std::exchange(other.path_, {});
      owner_ = other.owner_;
    }
    return *this;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() { remove(); }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::string file(std::string_view name) const { return (path_ / name).string(); }

 private:
  static std::string base() {
    const char* configured = std::getenv("TMPDIR");
    // A Unix socket's path has 108 bytes; a long TMPDIR would make every socket in here unusable.
    constexpr std::size_t kLongest = 60;
    std::string dir = configured != nullptr ? configured : "";
    return dir.empty() || dir.size() > kLongest ? "/tmp" : dir;
  }
  void remove() noexcept {
    if (!path_.empty() && owner_ == ::getpid()) {
      std::error_code ignored;
      std::filesystem::remove_all(path_, ignored);
    }
  }

  std::filesystem::path path_;
  pid_t owner_ = ::getpid();
};

}  // namespace rlock::test
