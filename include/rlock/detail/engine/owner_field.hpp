// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/block_cache.hpp>
#include <rlock/owner.hpp>

#include <array>
#include <charconv>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace rlock::detail {

/// An owner as the server knows it: the id of its client, a colon, and its number. With an id of
/// the usual length it takes no memory.
///
/// **Thread safety:** immutable.
class OwnerText {
 public:
  /// @throws std::bad_alloc  only for an id that is longer than a UUID
  OwnerText(std::string_view clientId, OwnerId owner) {
    if (clientId.size() <= kUuid) {
      size_ = write(few_.data(), clientId, owner);
    } else {
      many_.resize(clientId.size() + 1 + kDigits);
      size_ = write(many_.data(), clientId, owner);
    }
  }

  [[nodiscard]] std::string_view text() const noexcept {
    return {many_.empty() ? few_.data() : many_.data(), size_};
  }
  // NOLINTNEXTLINE(google-explicit-constructor): it is a text
  operator std::string_view() const noexcept { return text(); }

 private:
  static constexpr std::size_t kUuid = 36;
  static constexpr std::size_t kDigits = 20;

  static std::size_t write(char* place, std::string_view clientId, OwnerId owner) noexcept {
    char* end = place + clientId.copy(place, clientId.size());
    *end++ = ':';
    return static_cast<std::size_t>(std::to_chars(end, end + kDigits, owner.value).ptr - place);
  }

  std::size_t size_ = 0;
  std::array<char, kUuid + 1 + kDigits> few_;
  std::string many_;
};

/// An owner's text that is there while a request needs it, and takes little room otherwise.
///
/// **Thread safety:** One thread at a time.
class OwnerField {
 public:
  /// @param clientId  must outlive it
  OwnerField(const std::string& clientId, OwnerId owner) noexcept
      : clientId_(clientId), owner_(owner) {}

  /// It stays until rest().
  /// @throws std::bad_alloc  when it is not there yet
  [[nodiscard]] std::string_view text() const {
    if (!text_) {
      text_ = std::make_unique<Kept>(clientId_, owner_);
    }
    return text_->text();
  }
  // NOLINTNEXTLINE(google-explicit-constructor): it is a text
  operator std::string_view() const { return text(); }
  /// Empty if a request has not needed it yet, or since rest().
  [[nodiscard]] std::string_view atHand() const noexcept {
    return text_ ? text_->text() : std::string_view();
  }
  /// No request refers to the text.
  void rest() noexcept { text_.reset(); }

 private:
  struct Kept final : OwnerText, FromBlockCache<Kept> {
    using OwnerText::OwnerText;
  };

  const std::string& clientId_;
  const OwnerId owner_;
  mutable std::unique_ptr<Kept> text_;
};

}  // namespace rlock::detail
