// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/options.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace rlock::detail {

/// Whether the nodes that are asked for the map of a cluster are of use, and who else can be asked.
///
/// A node may answer and know nothing: it has lost its slots, is cut off from the others, or says
/// nothing at all. While it is the only one that has a connection, its word would be all that is
/// ever heard. So an answer that is of no use raises a doubt, and until one is of use the
/// *strangers* have a turn after all nodes that have a connection: the configured addresses, and
/// masters that the map names and no call has needed. Each turn is for the next of them. MapSource
/// is the caller.
///
/// **Thread safety:** a plain value; one thread at a time.
class MapDoubt {
 public:
  /// @param endpoints  the configured addresses, at least one
  explicit MapDoubt(std::vector<Endpoint> endpoints) : endpoints_(std::move(endpoints)) {}

  /// A turn was of no use.
  void raise() noexcept { ++raised_; }
  /// A node that is with the majority has told the map.
  void settle() noexcept { raised_ = 0; }
  [[nodiscard]] bool there() const noexcept { return raised_ > 0; }

  /// Whether it is a stranger's turn.
  /// @param connected  how many nodes have a connection
  [[nodiscard]] bool looksBeyond(std::size_t connected) const noexcept {
    return there() && raised_ % (connected + 1) == connected;
  }
  /// The next stranger; nothing: all of them are known.
  /// @param masters  that the map names and no call has needed
  /// @param isKnown  `bool(const Endpoint&)`: it has a connection already
  template <class IsKnown>
  std::optional<Endpoint> next(std::vector<Endpoint> masters, IsKnown isKnown);
  /// Whether each configured address has had a turn: alone, or together with the others in an
  /// attempt that reached none of them.
  [[nodiscard]] bool allHadATurn() const noexcept {
    return !there() || endpoints_.size() == 1 || turn_ >= endpoints_.size();
  }

 private:
  const std::vector<Endpoint> endpoints_;
  std::size_t raised_ = 0;  // turns in a row that were of no use
  std::size_t turn_ = 0;    // the first endpoint has its own last: it is asked first anyway
};

template <class IsKnown>
std::optional<Endpoint> MapDoubt::next(std::vector<Endpoint> masters, IsKnown isKnown) {
  std::vector<Endpoint> strangers = endpoints_;
  for (Endpoint& master : masters) {
    if (std::find(strangers.begin(), strangers.end(), master) == strangers.end()) {
      strangers.push_back(std::move(master));
    }
  }
  std::erase_if(strangers, isKnown);
  if (strangers.empty()) {
    return std::nullopt;
  }
  return strangers[++turn_ % strangers.size()];
}

}  // namespace rlock::detail
