// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/backoff.hpp>
#include <rlock/detail/net/hash_slot.hpp>
#include <rlock/options.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace rlock::detail {

/// The answer of a node that does not have a key.
struct Redirection {
  enum class Kind : std::uint8_t {
    moved,  ///< the slot belongs to another node, for good
    ask,    ///< this key has gone ahead to the node that the slot is on its way to
  };
  Kind kind = Kind::moved;
  std::uint16_t slot = 0;
  Endpoint to{};  ///< without a host: the node does not know the other's name yet
};

/// So many redirections of one request are followed at once; nodes that contradict each other
/// longer are asked again after a pause.
inline constexpr int kRedirectionsAtOnce = 5;

/// Reads `MOVED slot host:port` or `ASK slot host:port`.
/// @param asked  the address that answered: without a host, its host is meant
/// @returns nothing for another text
inline std::optional<Redirection> parseRedirection(std::string_view text, const Endpoint& asked) {
  Redirection result;
  if (text.starts_with("MOVED ")) {
    text.remove_prefix(6);
  } else if (text.starts_with("ASK ")) {
    text.remove_prefix(4);
    result.kind = Redirection::Kind::ask;
  } else {
    return std::nullopt;
  }
  const auto number = [](std::string_view digits, std::uint32_t most) {
    std::uint32_t value = 0;
    const char* const end = digits.data() + digits.size();
    const auto parsed = std::from_chars(digits.data(), end, value);
    return parsed.ec == std::errc() && parsed.ptr == end && value <= most ? std::optional(value)
                                                                          : std::nullopt;
  };
  const auto blank = text.find(' ');
  const auto colon = text.rfind(':');
  if (blank == std::string_view::npos || colon == std::string_view::npos || colon < blank) {
    return std::nullopt;
  }
  const auto slot = number(text.substr(0, blank), net::kSlots - 1);
  const auto port = number(text.substr(colon + 1), std::numeric_limits<std::uint16_t>::max());
  if (!slot || !port || *port == 0) {
    return std::nullopt;
  }
  std::string_view host = text.substr(blank + 1, colon - blank - 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  result.slot = static_cast<std::uint16_t>(*slot);
  result.to.host = host.empty() ? asked.host : host == "?" ? std::string() : std::string(host);
  result.to.port = static_cast<std::uint16_t>(*port);
  return result;
}

/// When the map of a cluster is asked for: at once after a time of calm, and more and more rarely
/// while answers change nothing, however many requests find that it is out of date.
///
/// **Thread safety:** one thread at a time. It reads no clock.
class RefreshPace {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// It is wanted. Returns when to ask; nothing while a question is under way.
  std::optional<TimePoint> wanted(TimePoint now) noexcept;
  /// A question goes out.
  void asked() noexcept {
    asking_ = true;
    wanted_ = false;
  }
  /// It was answered, or failed. Returns when to ask again; nothing if it is not wanted.
  std::optional<TimePoint> answered(TimePoint now, bool changed) noexcept;
  [[nodiscard]] bool asking() const noexcept { return asking_; }

 private:
  static constexpr std::chrono::milliseconds kPauseMin{50};
  static constexpr std::chrono::milliseconds kPauseMax{800};

  TimePoint next_{};
  DoublingPause pause_{kPauseMin, kPauseMax};
  bool asking_ = false;
  bool wanted_ = false;
};

inline std::optional<RefreshPace::TimePoint> RefreshPace::wanted(TimePoint now) noexcept {
  wanted_ = true;
  if (asking_) {
    return std::nullopt;
  }
  if (now - next_ > kPauseMax) {
    pause_.reset();
  }
  return std::max(now, next_);
}

inline std::optional<RefreshPace::TimePoint> RefreshPace::answered(TimePoint now,
                                                                   bool changed) noexcept {
  asking_ = false;
  if (changed) {
    pause_.reset();
  } else {
    pause_.grow();
  }
  next_ = now + pause_.current();
  return wanted_ ? std::optional(next_) : std::nullopt;
}

}  // namespace rlock::detail
