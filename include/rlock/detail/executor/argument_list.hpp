// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace rlock::detail {

/// The words of a command. As many as most commands have take no memory.
///
/// **Thread safety:** one thread at a time.
class ArgumentList {
 public:
  void clear() noexcept {
    size_ = 0;
    many_.clear();
  }
  /// @throws std::bad_alloc
  void push_back(std::string_view word) {
    if (size_ < kFew) {
      few_[size_++] = word;
    } else {
      pushBeyond(word);
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::string_view& operator[](std::size_t at) noexcept {
    return size_ <= kFew ? few_[at] : many_[at];
  }
  [[nodiscard]] std::span<const std::string_view> words() const noexcept {
    return size_ <= kFew ? std::span(few_).first(size_) : std::span(many_);
  }

 private:
  static constexpr std::size_t kFew = 16;

  void pushBeyond(std::string_view word);

  std::size_t size_ = 0;
  std::array<std::string_view, kFew> few_;
  std::vector<std::string_view> many_;  // all of them, when there are more
};

/// The rare half of push_back(), apart so that the other half is compiled into its callers.
[[gnu::noinline]] inline void ArgumentList::pushBeyond(std::string_view word) {
  if (size_ == kFew) {
    many_.assign(few_.begin(), few_.end());
  }
  many_.push_back(word);
  ++size_;
}

}  // namespace rlock::detail
