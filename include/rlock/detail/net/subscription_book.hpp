// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/backoff.hpp>
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/net/hash_slot.hpp>
#include <rlock/detail/net/subscriber_requests.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/error.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rlock::detail::net {

/// The channels of one subscriber connection: which of them are wanted, asked for, confirmed and
/// refused, what each reply of the server means for them, and which request is to be sent next. It
/// is the half of a SubscriptionTransport that needs no socket; its caller is PubSubLink, or the
/// simulation. The requests that are unanswered, and how long the server may be silent, are in
/// SubscriberRequests.
///
/// Invariants: per channel there is at most one unanswered request, so what is wanted and what the
/// server has can be compared whenever an answer comes, whatever was asked for in between. A
/// channel in which something is to be done is listed once, either as due or as to be asked for
/// again later. A channel is forgotten when it is neither wanted nor listed and the server has no
/// request or subscription of it.
///
/// The caller writes the requests in the order it gives them out and passes it each reply. If
/// anything throws in between, it must call end(): a request may then be half recorded, and only a
/// new connection starts from what is wanted. An end() leaves wanted channels only.
///
/// **Thread safety:** loop thread only. It reads no clock: time is a parameter.
class SubscriptionBook {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Times {
    std::chrono::milliseconds replyTimeout{};       ///< see silent()
    std::chrono::milliseconds heartbeatInterval{};  ///< see pingDue()
    std::chrono::milliseconds idleLinger{};         ///< see idle()
    ///@{
    /// The pause before asking a busy server again; doubled each time.
    std::chrono::milliseconds retryDelayMin{};
    std::chrono::milliseconds retryDelayMax{};
    ///@}
  };

  /// The meaning of one reply for the owner of the connection.
  struct Meaning {
    enum class Kind : std::uint8_t {
      nothing,
      message,     ///< for a wanted channel
      subscribed,  ///< a wanted channel, by a request sent after its last subscribe()
      refused,     ///< a wanted channel; it will be asked for again
      moved,       ///< a wanted channel is at another node; it will be asked for again here
      broken,      ///< the connection is of no use
    };
    Kind kind = Kind::nothing;
    bool answered = false;  ///< it answers a request, and not with an error
    /// Points into the reply or the book: valid until the reply is reused or the book changes.
    const std::string* channel = nullptr;
    Errc errc = Errc::connectionFailed;  ///< why it is refused or broken
  };

  explicit SubscriptionBook(const Times& times, ChannelKind kind = ChannelKind::classic)
      : times_(times), sharded_(kind == ChannelKind::sharded) {}

  /// A further call for the same channel is confirmed anew.
  void subscribe(std::string channel);
  void unsubscribe(const std::string& channel, TimePoint now);
  /// Forgets all channels; after end().
  void clear() noexcept;
  /// How many channels are wanted.
  [[nodiscard]] std::size_t wanted() const noexcept { return wanted_; }

  /// A connection is there; every wanted channel is due.
  void begin(TimePoint now);
  /// It is gone, and with it whatever was asked, confirmed or refused.
  void end() noexcept;

  /// Whether sendDue() has something to do.
  [[nodiscard]] bool due() const noexcept { return !due_.empty(); }
  /// Sends the requests for all that was asked for since the last call, in few requests: calls
  /// `send` with the words of each, a `std::span<const std::string_view>` or what it converts to.
  template <class Send>
  void sendDue(TimePoint now, Send&& send);
  template <class Send>
  void sendPing(TimePoint now, Send&& send);

  Meaning take(const Reply& reply, TimePoint now);

  /// Has all channels asked for again whose pause is over.
  void retry(TimePoint now);
  /// Whether a request has gone unanswered for so long that the peer counts as dead.
  [[nodiscard]] bool silent(TimePoint now) const noexcept {
    return requests_.silent(now, times_.replyTimeout);
  }
  /// Whether nobody has needed the connection for so long that it is to be closed.
  [[nodiscard]] bool idle(TimePoint now) const noexcept {
    return requests_.empty() && channels_.empty() && now >= idleSince_ + times_.idleLinger;
  }
  [[nodiscard]] bool pingDue(TimePoint now) const noexcept {
    return requests_.empty() && now >= requests_.lastReceived() + times_.heartbeatInterval;
  }
  /// When to look at retry(), silent(), idle() and pingDue() again. Replies only move it back,
  /// while there are requests; there is a connection.
  [[nodiscard]] TimePoint nextDue() const noexcept;

 private:
  /// One request names no more channels than this, and no more bytes of names.
  static constexpr std::size_t kBatchChannels = 128;
  static constexpr std::size_t kBatchBytes = std::size_t{32} << 10;
  /// How long to wait before a refused channel is asked for again: the rules that refuse it may be
  /// changed at any time. Doubled by each further refusal.
  static constexpr std::chrono::milliseconds kRefusedPauseMin{1000};
  static constexpr std::chrono::milliseconds kRefusedPauseMax{30000};

  enum class State : std::uint8_t { none, subscribing, subscribed, unsubscribing };
  struct Channel {
    std::uint64_t request = 0;  ///< the unanswered one while subscribing or unsubscribing
    State state = State::none;
    bool wanted = false;
    bool listed = false;  ///< in due_ or retrying_
    bool again = false;   ///< asked for since the last request went out
    bool alone = false;   ///< a request for several channels was refused: it is asked for by itself
    int refusals = 0;     ///< in a row
  };
  using Channels = std::unordered_map<std::string, Channel>;
  /// References into an unordered_map stay valid while it grows.
  using Entry = Channels::value_type;
  using Entries = std::vector<Entry*>;

  using Requests = SubscriberRequests<Entry>;
  using Kind = Requests::Kind;

  template <class Send>
  void sendBatches(Kind kind, const Entries& entries, TimePoint now, Send& send);
  template <class Send>
  void sendRequest(Kind kind, const Entries& entries, TimePoint now, Send& send);
  void makeDue(Entry& entry);
  /// Makes a channel due that is wanted, and forgets it if it is of no use.
  void reconsider(Entry& entry);
  void forgetIfUnused(Entry& entry) noexcept;

  bool progressed(bool answered) noexcept;
  [[nodiscard]] bool answersNothing(std::string_view text) const noexcept;
  Meaning takeConfirmation(Kind kind, const std::string& name, TimePoint now);
  Meaning takeError(std::string_view text, TimePoint now);
  Meaning refuse(Entry& entry, Errc errc, TimePoint now);
  void retryAt(Entry& entry, TimePoint when);

  const Times times_;
  const bool sharded_;
  bool connected_ = false;
  Channels channels_;
  std::size_t wanted_ = 0;
  Entries due_;
  /// Channels whose request met a server that was busy or refused them, by when to ask again.
  std::multimap<TimePoint, Entry*> retrying_;
  int busyAnswers_ = 0;  // in a row
  Requests requests_;
  TimePoint idleSince_{};
};

inline void SubscriptionBook::subscribe(std::string channel) {
  Entry& entry = *channels_.try_emplace(std::move(channel)).first;
  if (!entry.second.wanted) {
    entry.second.wanted = true;
    ++wanted_;
  }
  // Race of this call with an answer that is on its way: a message published before the call may
  // have come before it, too, so only a later request confirms it.
  entry.second.again =
      entry.second.state == State::subscribing || entry.second.state == State::subscribed;
  makeDue(entry);
}

inline void SubscriptionBook::unsubscribe(const std::string& channel, TimePoint now) {
  const auto found = channels_.find(channel);
  if (found == channels_.end() || !found->second.wanted) {
    return;
  }
  Entry& entry = *found;
  const bool asks = entry.second.state == State::subscribed;
  if (asks) {
    // First, because there may be no memory for it, and what is not wanted is not tried once more.
    makeDue(entry);
  }
  entry.second.wanted = false;
  entry.second.again = false;
  if (--wanted_ == 0) {
    idleSince_ = now;
  }
  if (!asks) {
    // While a request is unanswered its answer decides what comes next.
    forgetIfUnused(entry);
  }
}

inline void SubscriptionBook::clear() noexcept {
  channels_.clear();
  wanted_ = 0;
}

inline void SubscriptionBook::begin(TimePoint now) {
  connected_ = true;
  requests_.begin(now);
  idleSince_ = now;
  busyAnswers_ = 0;
  for (Entry& entry : channels_) {
    makeDue(entry);
  }
}

inline void SubscriptionBook::end() noexcept {
  connected_ = false;
  requests_.clear();
  retrying_.clear();
  due_.clear();
  for (auto it = channels_.begin(); it != channels_.end();) {
    if (it->second.wanted) {
      it->second = Channel{.wanted = true};
      ++it;
    } else {
      it = channels_.erase(it);
    }
  }
}

inline void SubscriptionBook::makeDue(Entry& entry) {
  if (!entry.second.listed) {
    due_.push_back(&entry);
    entry.second.listed = true;
  }
}

inline void SubscriptionBook::reconsider(Entry& entry) {
  if (entry.second.wanted) {
    makeDue(entry);
  } else {
    forgetIfUnused(entry);
  }
}

inline void SubscriptionBook::forgetIfUnused(Entry& entry) noexcept {
  const Channel& channel = entry.second;
  if (!channel.wanted && !channel.listed && channel.state == State::none) {
    channels_.erase(channels_.find(entry.first));
  }
}

template <class Send>
void SubscriptionBook::sendDue(TimePoint now, Send&& send) {
  const Entries due = std::exchange(due_, {});
  Entries subscribing;
  Entries subscribingAlone;
  Entries unsubscribing;
  for (Entry* entry : due) {
    Channel& channel = entry->second;
    channel.listed = false;
    if (!connected_) {
      // The next connection looks at every channel.
      forgetIfUnused(*entry);
    } else if (channel.wanted && (channel.state == State::none ||
                                  (channel.state == State::subscribed && channel.again))) {
      channel.again = false;
      (channel.alone ? subscribingAlone : subscribing).push_back(entry);
    } else if (channel.state == State::none) {
      forgetIfUnused(*entry);
    } else if (channel.state == State::subscribed && !channel.wanted) {
      unsubscribing.push_back(entry);
    }
  }
  sendBatches(Kind::unsubscribe, unsubscribing, now, send);
  sendBatches(Kind::subscribe, subscribing, now, send);
  for (Entry* entry : subscribingAlone) {
    sendRequest(Kind::subscribe, {entry}, now, send);
  }
}

template <class Send>
void SubscriptionBook::sendBatches(Kind kind, const Entries& entries, TimePoint now, Send& send) {
  // One request names channels of one slot only.
  std::vector<std::pair<std::uint16_t, Entry*>> ordered;
  ordered.reserve(entries.size());
  for (Entry* entry : entries) {
    ordered.emplace_back(sharded_ ? hashSlot(entry->first) : std::uint16_t{0}, entry);
  }
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return a.first < b.first;
  });
  Entries batch;
  std::size_t bytes = 0;
  std::uint16_t last = 0;
  for (const auto& [slot, entry] : ordered) {
    const std::size_t size = entry->first.size();
    const bool other = slot != std::exchange(last, slot);
    if (!batch.empty() && (other || batch.size() == kBatchChannels || bytes + size > kBatchBytes)) {
      sendRequest(kind, batch, now, send);
      batch.clear();
      bytes = 0;
    }
    batch.push_back(entry);
    bytes += size;
  }
  if (!batch.empty()) {
    sendRequest(kind, batch, now, send);
  }
}

template <class Send>
void SubscriptionBook::sendRequest(Kind kind, const Entries& entries, TimePoint now, Send& send) {
  const bool subscribing = kind == Kind::subscribe;
  std::vector<std::string_view> words;
  words.reserve(entries.size() + 1);
  words.emplace_back(sharded_ ? (subscribing ? "SSUBSCRIBE" : "SUNSUBSCRIBE")
                              : (subscribing ? "SUBSCRIBE" : "UNSUBSCRIBE"));
  for (const Entry* entry : entries) {
    words.emplace_back(entry->first);
  }
  const std::uint64_t number = requests_.add(kind, entries, now);
  for (Entry* entry : entries) {
    entry->second.state = subscribing ? State::subscribing : State::unsubscribing;
    entry->second.request = number;
  }
  send(words);
}

template <class Send>
void SubscriptionBook::sendPing(TimePoint now, Send&& send) {
  requests_.add(Kind::ping, {}, now);
  const std::vector<std::string_view> words{"PING"};
  send(words);
}

inline SubscriptionBook::Meaning SubscriptionBook::take(const Reply& reply, TimePoint now) {
  // Only whole replies count as a sign of life: a peer that sends a byte now and then would keep a
  // dead session alive.
  requests_.received(now);
  if (reply.isError()) {
    return takeError(reply.text, now);
  }
  const bool isList = reply.isArray() && !reply.elements.empty();
  if (reply.is("PONG") || (isList && reply.elements.front().is("pong"))) {
    return {.answered = progressed(requests_.ponged(now))};
  }
  if (!isList || reply.elements.size() != 3 || reply.elements[1].type != Reply::Type::string) {
    return {};
  }
  const Reply& kind = reply.elements.front();
  const std::string& name = reply.elements[1].text;
  if (kind.is(sharded_ ? "smessage" : "message")) {
    const auto found = channels_.find(name);
    const bool wanted = found != channels_.end() && found->second.wanted;
    return wanted ? Meaning{.kind = Meaning::Kind::message, .channel = &name} : Meaning{};
  }
  if (kind.is(sharded_ ? "ssubscribe" : "subscribe")) {
    return takeConfirmation(Kind::subscribe, name, now);
  }
  if (kind.is(sharded_ ? "sunsubscribe" : "unsubscribe")) {
    return takeConfirmation(Kind::unsubscribe, name, now);
  }
  return {};
}

inline bool SubscriptionBook::progressed(bool answered) noexcept {
  if (answered) {
    busyAnswers_ = 0;
  }
  return answered;
}

/// Race: the server ends subscriptions unasked, because their slot has gone, while a request to end
/// them is on its way. That counts as the answer, and the request meets an error that is about no
/// request in the book. A ping meets no such error; otherwise the slot tells, if it is named.
inline bool SubscriptionBook::answersNothing(std::string_view text) const noexcept {
  const std::string_view code = firstWord(text);
  if (!sharded_ || (code != "MOVED" && code != "CLUSTERDOWN")) {
    return false;
  }
  const Requests::Unanswered* const oldest = requests_.oldest();
  if (oldest == nullptr || oldest->kind == Kind::ping) {
    return true;
  }
  if (code == "CLUSTERDOWN") {
    return false;
  }
  std::uint16_t slot = 0;
  const std::string_view rest =
      text.substr(std::min(text.size(), std::string_view("MOVED ").size()));
  const bool read = std::from_chars(rest.data(), rest.data() + rest.size(), slot).ec == std::errc();
  return read && slot != hashSlot(oldest->channels.front()->first);
}

inline SubscriptionBook::Meaning SubscriptionBook::takeConfirmation(Kind kind,
                                                                    const std::string& name,
                                                                    TimePoint now) {
  const auto found = channels_.find(name);
  if (found == channels_.end()) {
    return {};
  }
  Entry& entry = *found;
  Channel& channel = entry.second;
  Meaning meaning;
  if (kind == Kind::subscribe && channel.state == State::subscribing) {
    meaning.answered = progressed(requests_.answered(channel.request, entry, now));
    channel.state = State::subscribed;
    channel.alone = false;
    channel.refusals = 0;
    if (!channel.wanted || channel.again) {
      // The channel was given up or asked for anew while this answer was on its way.
      makeDue(entry);
      return meaning;
    }
    meaning.kind = Meaning::Kind::subscribed;
    meaning.channel = &name;
  } else if (kind == Kind::unsubscribe &&
             (channel.state == State::unsubscribing || channel.state == State::subscribed)) {
    // A server may end a subscription unasked: its slot has gone to another node.
    if (channel.state == State::unsubscribing) {
      meaning.answered = progressed(requests_.answered(channel.request, entry, now));
    } else if (sharded_ && channel.wanted) {
      meaning.kind = Meaning::Kind::moved;
      meaning.channel = &name;
    }
    channel.state = State::none;
    reconsider(entry);
  }
  return meaning;
}

/// The server answers in order, and everything before the oldest unanswered request has been
/// confirmed: the error is that request's.
inline SubscriptionBook::Meaning SubscriptionBook::takeError(std::string_view text, TimePoint now) {
  if (answersNothing(text)) {
    return {};
  }
  const std::string_view code = firstWord(text);
  if (requests_.empty() || code == "NOAUTH") {
    return {.kind = Meaning::Kind::broken,
            .errc = code == "NOAUTH" ? Errc::authenticationFailed : Errc::connectionFailed};
  }
  const Requests::Unanswered request = requests_.takeOldest(now);
  if (request.kind == Kind::ping) {
    return {};
  }
  for (Entry* entry : request.channels) {
    entry->second.state = State::none;
  }
  if (request.kind == Kind::unsubscribe) {
    for (Entry* entry : request.channels) {
      // The server goes on sending; what is not wanted is dropped on arrival.
      reconsider(*entry);
    }
    return {};
  }
  const bool moved = sharded_ && (code == "MOVED" || code == "CLUSTERDOWN");
  if (moved || code == "BUSY" || code == "LOADING" || code == "MASTERDOWN" || code == "TRYAGAIN") {
    const auto pause = exponentialPause(times_.retryDelayMin, times_.retryDelayMax, busyAnswers_++);
    const std::string* told = nullptr;
    for (Entry* entry : request.channels) {
      if (entry->second.wanted) {
        told = &entry->first;
      }
      retryAt(*entry, now + pause);
    }
    return moved && told != nullptr ? Meaning{.kind = Meaning::Kind::moved, .channel = told}
                                    : Meaning{};
  }
  if (request.channels.size() == 1) {
    return refuse(
        *request.channels.front(), code == "NOPERM" ? Errc::denied : Errc::serverError, now);
  }
  // The server refused one of these channels and does not say which, so each is asked for by
  // itself.
  for (Entry* entry : request.channels) {
    entry->second.alone = true;
    reconsider(*entry);
  }
  return {};
}

inline SubscriptionBook::Meaning SubscriptionBook::refuse(Entry& entry, Errc errc, TimePoint now) {
  if (!entry.second.wanted) {
    // It was given up while the refusal was on its way.
    forgetIfUnused(entry);
    return {};
  }
  entry.second.again = false;
  retryAt(entry,
          now + exponentialPause(kRefusedPauseMin, kRefusedPauseMax, entry.second.refusals++));
  return {.kind = Meaning::Kind::refused, .channel = &entry.first, .errc = errc};
}

inline void SubscriptionBook::retryAt(Entry& entry, TimePoint when) {
  if (!entry.second.listed) {
    retrying_.emplace(when, &entry);
    entry.second.listed = true;
  }
}

inline void SubscriptionBook::retry(TimePoint now) {
  while (!retrying_.empty() && now >= retrying_.begin()->first) {
    Entry& entry = *retrying_.begin()->second;
    retrying_.erase(retrying_.begin());
    entry.second.listed = false;
    makeDue(entry);
  }
}

inline SubscriptionBook::TimePoint SubscriptionBook::nextDue() const noexcept {
  const TimePoint due = retrying_.empty() ? TimePoint::max() : retrying_.begin()->first;
  if (!requests_.empty()) {
    return std::min(due, requests_.peerDeadline(times_.replyTimeout));
  }
  const TimePoint ping = std::min(due, requests_.lastReceived() + times_.heartbeatInterval);
  return channels_.empty() ? std::min(ping, idleSince_ + times_.idleLinger) : ping;
}

}  // namespace rlock::detail::net
