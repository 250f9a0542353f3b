// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/owner.hpp>

#include <array>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>

namespace rlock::detail {

/// An owner as the server knows it: the id of its client, a colon, and its number. With an id of
/// the usual length it takes no memory.
///
/// **Thread safety:** immutable.
class OwnerField {
 public:
  /// @throws std::bad_alloc  only for an id that is longer than a UUID
  OwnerField(std::string_view clientId, OwnerId owner) {
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

}  // namespace rlock::detail
