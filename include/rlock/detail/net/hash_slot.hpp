// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rlock::detail::net {

/// How many slots the keys of a cluster are spread over.
inline constexpr std::size_t kSlots = 16384;

/// The table of CRC16 as XMODEM has it: polynomial 0x1021, most significant bit first.
constexpr std::array<std::uint16_t, 256> makeCrc16Table() noexcept {
  std::array<std::uint16_t, 256> table{};
  for (unsigned byte = 0; byte < table.size(); ++byte) {
    unsigned crc = byte << 8U;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc & 0x8000U) != 0 ? (crc << 1U) ^ 0x1021U : crc << 1U;
    }
    table[byte] = static_cast<std::uint16_t>(crc & 0xffffU);
  }
  return table;
}
inline constexpr std::array<std::uint16_t, 256> kCrc16Table = makeCrc16Table();

constexpr std::uint16_t crc16(std::string_view bytes) noexcept {
  unsigned crc = 0;
  for (const char c : bytes) {
    crc = (crc << 8U) ^ kCrc16Table[((crc >> 8U) ^ static_cast<unsigned char>(c)) & 0xffU];
  }
  return static_cast<std::uint16_t>(crc & 0xffffU);
}

/// The part of a key that decides on its slot: what is between the first `{` and the next `}`, if
/// that is not empty; else the whole key.
constexpr std::string_view hashTag(std::string_view key) noexcept {
  const std::size_t open = key.find('{');
  if (open == std::string_view::npos) {
    return key;
  }
  const std::size_t close = key.find('}', open + 1);
  return close == std::string_view::npos || close == open + 1
             ? key
             : key.substr(open + 1, close - open - 1);
}

/// The slot of a key or of a channel, as the servers compute it.
constexpr std::uint16_t hashSlot(std::string_view key) noexcept {
  return static_cast<std::uint16_t>(crc16(hashTag(key)) % kSlots);
}

}  // namespace rlock::detail::net
