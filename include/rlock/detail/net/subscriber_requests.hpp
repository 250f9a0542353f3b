// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace rlock::detail::net {

/// The requests of one subscriber connection that the server has not answered, in the order they
/// were written, and for how long it may be silent about them.
///
/// A subscriber's requests are not answered one by one: one that names several channels is
/// confirmed channel by channel, while messages come in between. Invariants: a request has a number
/// of its own, in the order of writing, and is unanswered until each of its channels (a ping: the
/// request itself) is answered; the first one in here is unanswered. A channel that is answered is
/// not referred to any more. An error answers the rest of the first one, because the server answers
/// in order.
///
/// The server counts as dead when neither an answer nor anything else has come for the reply
/// timeout. Messages prove that it lives, but not that it still hears us: without an answer the
/// time is over after twice the timeout, whatever else comes.
///
/// SubscriptionBook is its only caller. It reads no clock: time is a parameter.
///
/// @tparam Channel  the book's entry for a channel
///
/// **Thread safety:** loop thread only.
template <class Channel>
class SubscriberRequests {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  enum class Kind : std::uint8_t { subscribe, unsubscribe, ping };

  struct Unanswered {
    Kind kind = Kind::ping;
    std::vector<Channel*> channels{};  ///< those that are not answered
    bool ponged = false;
    [[nodiscard]] bool over() const noexcept {
      return kind == Kind::ping ? ponged : channels.empty();
    }
  };

  /// There is a connection.
  void begin(TimePoint now) noexcept { lastReceived_ = lastProgress_ = now; }
  /// It is gone, and with it all requests; their numbers are not used again.
  void clear() noexcept {
    first_ += unanswered_.size();
    unanswered_.clear();
  }

  /// A request is about to be written. Returns its number.
  /// @param channels  none: a ping
  std::uint64_t add(Kind kind, std::vector<Channel*> channels, TimePoint now) {
    if (unanswered_.empty()) {
      lastProgress_ = now;
    }
    unanswered_.push_back({kind, std::move(channels)});
    return first_ + unanswered_.size() - 1;
  }
  /// Something came from the server.
  void received(TimePoint now) noexcept { lastReceived_ = now; }
  /// One channel of a request was answered, and may cease to exist. False: the request is
  /// unanswered no more.
  bool answered(std::uint64_t number, const Channel& channel, TimePoint now) noexcept;
  /// The first ping was answered. False: there is none.
  bool ponged(TimePoint now) noexcept;
  /// The rest of the first request was answered. There is one.
  Unanswered takeOldest(TimePoint now);

  [[nodiscard]] bool empty() const noexcept { return unanswered_.empty(); }
  /// The first one; null when there is none.
  [[nodiscard]] const Unanswered* oldest() const noexcept {
    return unanswered_.empty() ? nullptr : &unanswered_.front();
  }
  [[nodiscard]] TimePoint lastReceived() const noexcept { return lastReceived_; }
  /// When the server counts as dead, if there are requests.
  [[nodiscard]] TimePoint peerDeadline(std::chrono::milliseconds replyTimeout) const noexcept {
    constexpr int kPatience = 2;
    return std::min(std::max(lastReceived_, lastProgress_) + replyTimeout,
                    lastProgress_ + kPatience * replyTimeout);
  }
  [[nodiscard]] bool silent(TimePoint now, std::chrono::milliseconds replyTimeout) const noexcept {
    return !empty() && now >= peerDeadline(replyTimeout);
  }

 private:
  void progressed(TimePoint now) noexcept;

  std::deque<Unanswered> unanswered_;
  std::uint64_t first_ = 0;  // the number of the first in it
  TimePoint lastReceived_{};
  TimePoint lastProgress_{};  // the last answer, or the first request after a time without one
};

template <class Channel>
bool SubscriberRequests<Channel>::answered(std::uint64_t number,
                                           const Channel& channel,
                                           TimePoint now) noexcept {
  const std::uint64_t index = number - first_;
  if (index >= unanswered_.size()) {
    return false;
  }
  auto& channels = unanswered_[static_cast<std::size_t>(index)].channels;
  // Most of the time it is the first one: the server confirms them in their order.
  const auto found = std::find(channels.begin(), channels.end(), &channel);
  if (found == channels.end()) {
    return false;
  }
  channels.erase(found);
  progressed(now);
  return true;
}

template <class Channel>
bool SubscriberRequests<Channel>::ponged(TimePoint now) noexcept {
  const auto ping = std::find_if(unanswered_.begin(), unanswered_.end(), [](const auto& request) {
    return request.kind == Kind::ping && !request.ponged;
  });
  if (ping == unanswered_.end()) {
    return false;
  }
  ping->ponged = true;
  progressed(now);
  return true;
}

template <class Channel>
void SubscriberRequests<Channel>::progressed(TimePoint now) noexcept {
  while (!unanswered_.empty() && unanswered_.front().over()) {
    unanswered_.pop_front();
    ++first_;
  }
  lastProgress_ = now;
}

template <class Channel>
typename SubscriberRequests<Channel>::Unanswered SubscriberRequests<Channel>::takeOldest(
    TimePoint now) {
  Unanswered request = std::move(unanswered_.front());
  unanswered_.pop_front();
  ++first_;
  progressed(now);
  return request;
}

}  // namespace rlock::detail::net
