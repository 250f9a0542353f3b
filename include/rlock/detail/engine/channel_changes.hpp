// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace rlock::detail {

/// The subscriptions that are to begin, to be confirmed once more, or to end, collected for whoever
/// owns the connection; and which confirmation is the answer to which request. Confirmations are
/// numbered over all channels, and at most one of a channel is under way: each follows its request,
/// so that one that comes before its request has gone out is an earlier one's.
///
/// **Thread safety:** One thread at a time.
class ChannelChanges {
 public:
  struct Change {
    std::string channel;
    bool subscribe;
  };
  /// The requests for one channel, and those of them that were confirmed.
  struct Confirmations {
    std::uint64_t asked = 0;
    std::uint64_t askedBefore = 0;  // which taking of the changes
    std::uint64_t confirmed = 0;
    bool again = false;  // somebody came while one was under way
  };

  void subscribe(const std::string& channel, Confirmations& of) {
    changes_.push_back({channel, true});
    of.asked = ++asked_;
    of.askedBefore = taken_;
  }
  void unsubscribe(const std::string& channel) { changes_.push_back({channel, false}); }
  /// Takes the latest change back.
  void takeBack() noexcept { changes_.pop_back(); }

  /// The first confirmation of those whose requests go out from now on.
  std::uint64_t confirmationFrom(const std::string& channel, Confirmations& of);
  /// A confirmation came.
  void confirmed(const std::string& channel, Confirmations& of);

  /// The changes that have become due since the last call, in order.
  std::vector<Change> take() noexcept {
    ++taken_;
    return std::exchange(changes_, {});
  }
  [[nodiscard]] bool empty() const noexcept { return changes_.empty(); }

 private:
  std::uint64_t asked_ = 0;
  std::uint64_t taken_ = 0;  // how often the changes were
  std::vector<Change> changes_;
};

inline std::uint64_t ChannelChanges::confirmationFrom(const std::string& channel,
                                                      Confirmations& of) {
  if (of.askedBefore == taken_) {
    return of.asked;
  }
  if (of.confirmed == of.asked) {
    subscribe(channel, of);
    return of.asked;
  }
  of.again = true;
  return of.asked + 1;
}

inline void ChannelChanges::confirmed(const std::string& channel, Confirmations& of) {
  // A request that has not gone out yet cannot be the one that was confirmed.
  if (of.confirmed != of.asked && of.askedBefore != taken_) {
    of.confirmed = of.asked;
    if (of.again) {
      subscribe(channel, of);
      of.again = false;
    }
  }
}

}  // namespace rlock::detail
