// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/reply.hpp>
#include <rlock/options.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace rlock::detail::net {

/// A Sentinel's answer about a master.
struct SentinelAnswer {
  std::optional<Endpoint> master{};  ///< empty: it knows none of that name
  std::vector<Endpoint> others{};    ///< further Sentinels that watch it
  std::vector<Endpoint> dead{};      ///< those of them that do not answer this one
};

/// An address as a Sentinel writes it. Empty: it is none.
inline std::optional<Endpoint> endpointOf(std::string_view host, std::string_view port) {
  std::uint16_t number = 0;
  const char* const end = port.data() + port.size();
  const auto parsed = std::from_chars(port.data(), end, number);
  if (host.empty() || parsed.ec != std::errc() || parsed.ptr != end || number == 0) {
    return std::nullopt;
  }
  Endpoint endpoint;
  endpoint.host = host;
  endpoint.port = number;
  return endpoint;
}

/// The reply to SENTINEL GET-MASTER-ADDR-BY-NAME.
inline std::optional<Endpoint> masterOf(const Reply& reply) {
  return reply.isArray() && reply.elements.size() == 2
             ? endpointOf(reply.elements[0].text, reply.elements[1].text)
             : std::nullopt;
}

/// Takes the reply to SENTINEL SENTINELS, for each a list of names and values, into an answer.
inline void readSentinels(const Reply& reply, SentinelAnswer& answer) {
  if (!reply.isArray()) {
    return;
  }
  for (const Reply& each : reply.elements) {
    std::string_view host;
    std::string_view port;
    std::string_view flags;
    for (std::size_t i = 0; each.isArray() && i + 1 < each.elements.size(); i += 2) {
      const std::string& name = each.elements[i].text;
      const std::string_view value = each.elements[i + 1].text;
      if (name == "ip") {
        host = value;
      } else if (name == "port") {
        port = value;
      } else if (name == "flags") {
        flags = value;
      }
    }
    if (auto endpoint = endpointOf(host, port)) {
      if (flags.find("s_down") != std::string_view::npos) {
        answer.dead.push_back(*endpoint);
      }
      answer.others.push_back(*std::move(endpoint));
    }
  }
}

/// Whether a message of the channel +switch-master, `name old-ip old-port new-ip new-port`, is
/// about this master.
inline bool isAbout(std::string_view message, std::string_view master) noexcept {
  return message.substr(0, message.find(' ')) == master;
}

/// The new address in such a message. Empty: it cannot be read.
inline std::optional<Endpoint> switchedTo(std::string_view message) {
  std::vector<std::string_view> words;
  while (!message.empty()) {
    const std::size_t end = std::min(message.find(' '), message.size());
    words.push_back(message.substr(0, end));
    message = message.substr(std::min(end + 1, message.size()));
  }
  return words.size() == 5 ? endpointOf(words[3], words[4]) : std::nullopt;
}

/// The Sentinels that a client knows: those of its configuration, which it never forgets, and those
/// that these have named. Invariants: an address is in it once, and no more than kLearnt are kept
/// that only Sentinels have named; those that do not answer the others are forgotten first.
/// MasterSearch asks them in order(); all searches of a client have one list, so that each knows
/// what those before it have learnt.
///
/// One of them is listened to, and its word where the master is counts for more than an answer of
/// the others: another word than the last one is a move. It is a message, or an answer, for what a
/// Sentinel has said while nobody listened is said no more. An answer that only repeats the last
/// word counts nothing, however often it is given: a Sentinel that is subscribed at again and again
/// makes no name stale.
///
/// **Thread safety:** One thread at a time.
class SentinelList {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit SentinelList(std::vector<Endpoint> configured)
      : known_(std::move(configured)), configured_(known_.size()) {}

  /// All of them, in the order in which they are to be asked: the one that answered last comes
  /// first.
  [[nodiscard]] std::vector<Endpoint> order() const {
    std::vector<Endpoint> result = known_;
    const auto last = std::find(result.begin(), result.end(), answeredLast_);
    if (last != result.end()) {
      std::rotate(result.begin(), last, last + 1);
    }
    return result;
  }

  /// In this order one is looked for that says when the master moves: those that have refused to
  /// come last.
  [[nodiscard]] std::vector<Endpoint> orderToListen() const;
  /// The one that is listened to refuses to say when the master moves.
  /// @returns whether another has not refused yet, of all that are known; if none has not, all of
  ///          them have their turn again
  bool refused();

  /// One has answered, and named others.
  /// @param dead  those of them that do not answer it
  void answered(const Endpoint& sentinel,
                const std::vector<Endpoint>& others,
                const std::vector<Endpoint>& dead = {});

  /// A connection to this one is there, to subscribe at it.
  /// @param moves  as moves() was before it was asked
  /// @returns whether it says that the master has moved
  bool listensTo(const Endpoint& sentinel,
                 const SentinelAnswer& answer,
                 std::uint64_t moves,
                 TimePoint now);
  /// An answer of a Sentinel is its word, if that Sentinel is listened to and nothing
  /// newer has been heard since it was asked.
  /// @param moves  as moves() was before it was asked
  /// @returns whether it says that the master has moved
  bool heard(const Endpoint& sentinel,
             const std::optional<Endpoint>& master,
             std::uint64_t moves,
             TimePoint now);

  /// The master was found there.
  void found(Endpoint master, TimePoint now) noexcept {
    everFound_ = true;
    found_ = std::move(master);
    hint_ = Hint::found;
    hintedAt_ = now;
  }
  /// The name is right, whatever a Sentinel says later on.
  [[nodiscard]] bool everFound() const noexcept { return everFound_; }

  /// A Sentinel has just said that the master has moved: the searches of the next moment look there
  /// first, and those that are under way count nothing that was named before.
  /// @param master  where it is now; empty: the message could not be read
  void hint(std::optional<Endpoint> master, TimePoint now) noexcept;
  [[nodiscard]] std::optional<Endpoint> hint(TimePoint now) const {
    if (hint_ == Hint::none || now - hintedAt_ >= kHintLife) {
      return std::nullopt;
    }
    return hint_ == Hint::found ? std::optional(found_) : said_;
  }
  /// The searches that begin from here on ask the Sentinels, whatever has just been found.
  void doubt() noexcept { hint_ = Hint::none; }
  /// How often a Sentinel has said that the master has moved.
  [[nodiscard]] std::uint64_t moves() const noexcept { return moves_; }
  /// Where it has moved to, by the last word. Empty: that could not be read.
  [[nodiscard]] std::optional<Endpoint> movedTo() const { return read_ ? said_ : std::nullopt; }

  /// Whether the master has moved away from there a moment ago. The Sentinels are told of it one
  /// after the other, and one that is not yet still names that address.
  [[nodiscard]] bool left(const Endpoint& master, TimePoint now) const noexcept {
    return left_ == master && now - leftAt_ < kAgreement;
  }
  /// A server says that it is no master, and was asked since the last move: if that is where the
  /// master has moved to, the address before is as good as any.
  void disowned(const Endpoint& server) noexcept {
    if (said_ == server) {
      left_.reset();
    }
  }

 private:
  static constexpr std::size_t kLearnt = 16;
  /// It is short, because later the master may be elsewhere, and the server at this address say
  /// that it is a master all the same: one that was restarted does, until the Sentinels notice.
  static constexpr std::chrono::seconds kHintLife{2};
  /// A Sentinel tells the others every two seconds which configuration it has, and one that hears
  /// of a newer one takes it over. It is this long, and not longer, because the word may have been
  /// wrong.
  static constexpr std::chrono::seconds kAgreement{4};
  enum class Hint : std::uint8_t { none, found, said };

  void forgetOne(const std::vector<Endpoint>& dead);

  std::vector<Endpoint> known_;
  std::size_t configured_;
  Endpoint answeredLast_{};
  bool everFound_ = false;
  Endpoint found_{};
  Hint hint_ = Hint::none;
  TimePoint hintedAt_{};
  std::uint64_t moves_ = 0;
  std::vector<Endpoint> refusing_;  ///< do not say when the master moves, the latest at the end
  std::optional<Endpoint> heard_;   ///< the Sentinel that is listened to
  std::optional<Endpoint> said_;    ///< its last word that could be read
  bool read_ = false;               ///< `said_` is its last word
  std::optional<Endpoint> left_;    ///< its word before that
  TimePoint leftAt_{};
};

inline void SentinelList::hint(std::optional<Endpoint> master, TimePoint now) noexcept {
  ++moves_;
  hintedAt_ = now;
  read_ = master.has_value();
  hint_ = read_ ? Hint::said : Hint::none;
  // The same word once more must not be taken for the one before.
  if (read_ && said_ != master) {
    left_ = std::exchange(said_, std::move(master));
    leftAt_ = now;
  }
}

inline bool SentinelList::listensTo(const Endpoint& sentinel,
                                    const SentinelAnswer& answer,
                                    std::uint64_t moves,
                                    TimePoint now) {
  answered(sentinel, answer.others, answer.dead);
  heard_ = sentinel;
  return heard(sentinel, answer.master, moves, now);
}

inline bool SentinelList::heard(const Endpoint& sentinel,
                                const std::optional<Endpoint>& master,
                                std::uint64_t moves,
                                TimePoint now) {
  if (heard_ != sentinel || !master || moves != moves_ || left(*master, now)) {
    return false;
  }
  std::optional<Endpoint> word = master;
  if (!said_) {
    said_ = std::move(word);
    return false;
  }
  if (said_ == word) {
    return false;
  }
  hint(std::move(word), now);
  return true;
}

inline std::vector<Endpoint> SentinelList::orderToListen() const {
  std::vector<Endpoint> result = order();
  for (const Endpoint& each : refusing_) {
    const auto at = std::find(result.begin(), result.end(), each);
    if (at != result.end()) {
      std::rotate(at, at + 1, result.end());
    }
  }
  return result;
}

inline bool SentinelList::refused() {
  if (!heard_) {
    return false;
  }
  std::erase_if(refusing_, [this](const Endpoint& each) {
    return each == heard_ || std::find(known_.begin(), known_.end(), each) == known_.end();
  });
  refusing_.push_back(*heard_);
  if (refusing_.size() < known_.size()) {
    return true;
  }
  refusing_.erase(refusing_.begin(), refusing_.end() - 1);
  return false;
}

inline void SentinelList::answered(const Endpoint& sentinel,
                                   const std::vector<Endpoint>& others,
                                   const std::vector<Endpoint>& dead) {
  answeredLast_ = sentinel;
  for (const Endpoint& other : others) {
    if (std::find(known_.begin(), known_.end(), other) == known_.end()) {
      known_.push_back(other);
    }
  }
  while (known_.size() > configured_ + kLearnt) {
    forgetOne(dead);
  }
}

/// Addresses that change all the time are forgotten in the order in which they came, after those
/// where nobody answers: Sentinels never forget one that is gone. The one that has just answered
/// is kept.
inline void SentinelList::forgetOne(const std::vector<Endpoint>& dead) {
  const auto learnt = known_.begin() + static_cast<std::ptrdiff_t>(configured_);
  const auto useless = std::find_if(learnt, known_.end(), [&](const Endpoint& each) {
    return each != answeredLast_ && std::find(dead.begin(), dead.end(), each) != dead.end();
  });
  known_.erase(useless != known_.end() ? useless : *learnt == answeredLast_ ? learnt + 1 : learnt);
}

}  // namespace rlock::detail::net
