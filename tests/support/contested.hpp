// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/rlock.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

namespace rlock::test {

/// A thing that one client holds and another waits for: a lock, a permit, a count.
struct ContestedKind {
  using Names = std::vector<std::string>;

  /// The hold of the holder. The lease is empty where the kind has none; then `held` asks the
  /// server.
  struct Hold {
    std::shared_ptr<Lease> lease{};
    std::function<bool()> held{};
    /// Returns whether there was something to give back.
    std::function<bool()> giveBack{};
  };

  const char* name;
  std::size_t members;  ///< locks that it is made of
  /// Until its end the server forgets no such hold, unless it is renewed.
  bool watched;
  /// Whether a call that waits counts in Stats::waiters.
  bool counted;
  Hold (*hold)(Client& holder, const Names& names);
  /// Enters and returns how to leave.
  std::function<void()> (*enter)(Client& other, const Names& names);
};

/// Every kind there is; readers wait for a writer and a writer for readers.
[[nodiscard]] std::span<const ContestedKind> contestedKinds();

/// One object that is held by one client and waited for by another, with a number that nothing else
/// protects. The holder goes out when it gives the object back, or when it is told that its hold is
/// lost. One thread at a time; `holder` and `other` must outlive it, and `other` must be closed
/// before it if its caller may still wait.
class Contested {
 public:
  Contested(const ContestedKind& kind, ContestedKind::Names names, Client& holder);
  Contested(const Contested&) = delete;
  Contested& operator=(const Contested&) = delete;
  ~Contested();

  [[nodiscard]] const ContestedKind& kind() const { return kind_; }
  [[nodiscard]] const ContestedKind::Names& names() const { return names_; }

  /// The other client begins to wait, on a thread of its own, and goes out as soon as it was in.
  void contend(Client& other);
  [[nodiscard]] bool held() const { return hold_.held(); }
  /// Empty: a kind without a lease.
  [[nodiscard]] const Lease* lease() const { return hold_.lease.get(); }
  /// The holder goes out and gives the object back; false: it had been lost.
  bool giveBack();
  [[nodiscard]] bool entered() const { return entered_; }
  /// "ok" or the name of the Errc, when the other's call is over.
  std::string outcome();
  /// How often both were inside. A failure because of that is never excused by a host that stood
  /// still.
  [[nodiscard]] int overlaps() const;

 private:
  void goIn();
  void goOut();
  void holderLeaves();

  const ContestedKind& kind_;
  const ContestedKind::Names names_;
  std::atomic<int> inside_{0};
  std::atomic<int> overlaps_{0};
  std::atomic<bool> holderInside_{true};
  std::atomic<bool> entered_{false};
  ContestedKind::Hold hold_;
  std::optional<std::stop_callback<std::function<void()>>> whenLost_;
  std::future<std::string> other_;
};

/// One of each kind. `nameOf` says the name of the member with that number of an object whose kind
/// is called so.
[[nodiscard]] std::vector<std::unique_ptr<Contested>> contestedObjects(
    Client& holder,
    const std::function<std::string(const std::string& kind, std::size_t member)>& nameOf);

/// Has the other client wait for all of them, and returns when it does.
[[nodiscard]] bool contendAll(const std::vector<std::unique_ptr<Contested>>& objects,
                              Client& other);

/// The holder gives it back, and the other client, which waits, has it within 2 s.
void expectToHandOn(Contested& object);

/// Nothing has failed, and no two had it at once.
void expectToEndWell(const std::vector<std::unique_ptr<Contested>>& objects);

}  // namespace rlock::test
