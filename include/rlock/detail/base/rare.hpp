// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// A text that most objects of a class have none of: one word as long as it is empty.
///
/// **Thread safety:** One thread at a time.
class RareText {
 public:
  RareText() noexcept = default;
  /// @throws std::bad_alloc  unless the text is empty
  explicit RareText(std::string_view text)
      : text_(text.empty() ? nullptr : std::make_unique<const std::string>(text)) {}

  [[nodiscard]] bool empty() const noexcept { return text_ == nullptr; }
  [[nodiscard]] std::string_view view() const noexcept {
    return text_ ? std::string_view(*text_) : std::string_view();
  }
  // NOLINTNEXTLINE(google-explicit-constructor): it is a text
  operator std::string() const { return std::string(view()); }

 private:
  std::unique_ptr<const std::string> text_;
};

/// A vector that most objects of a class have nothing in: one word as long as nothing was.
///
/// **Thread safety:** One thread at a time.
template <class T>
class RareVector {
 public:
  RareVector() noexcept = default;

  [[nodiscard]] bool empty() const noexcept { return items_ == nullptr || items_->empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return items_ == nullptr ? 0 : items_->size(); }
  [[nodiscard]] T* data() noexcept { return items_ == nullptr ? nullptr : items_->data(); }
  [[nodiscard]] const T* data() const noexcept {
    return items_ == nullptr ? nullptr : items_->data();
  }
  [[nodiscard]] T* begin() noexcept { return data(); }
  [[nodiscard]] T* end() noexcept { return data() + size(); }
  [[nodiscard]] const T* begin() const noexcept { return data(); }
  [[nodiscard]] const T* end() const noexcept { return data() + size(); }
  [[nodiscard]] T& back() noexcept { return items_->back(); }
  [[nodiscard]] T& operator[](std::size_t at) noexcept { return (*items_)[at]; }
  [[nodiscard]] const T& operator[](std::size_t at) const noexcept { return (*items_)[at]; }

  /// @throws std::bad_alloc  then nothing has changed
  T& emplace_back(T item = T()) {
    if (items_ == nullptr) {
      items_ = std::make_unique<std::vector<T>>();
    }
    return items_->emplace_back(std::move(item));
  }
  /// Keeps some of its items: these.
  void keepOnly(std::vector<T> items) noexcept {
    if (items_ != nullptr) {
      *items_ = std::move(items);
    }
  }

 private:
  std::unique_ptr<std::vector<T>> items_;
};

}  // namespace rlock::detail
