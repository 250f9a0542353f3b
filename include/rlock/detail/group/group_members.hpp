// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/fork.hpp>
#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/error.hpp>
#include <rlock/owner.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace rlock::detail {

/// The members of a lock that consists of others: which they are, how many of them make the lock,
/// and what they have in common. They stand in the order in which every client takes them, so that
/// two clients never wait for each other, and do not change.
///
/// It also speaks for the whole: errors name the group, handlers and timers run by the client of
/// one member, and a call is refused in a forked child or, if it blocks, on the loop thread of any
/// member's client.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class GroupMembers : public std::enable_shared_from_this<GroupMembers> {
 public:
  using Clock = std::chrono::steady_clock;
  using List = std::vector<std::shared_ptr<LockMember>>;

  /// @param list  at least one, not one twice
  /// @param need  how many must be held
  GroupMembers(std::string_view kind, const List& list, std::size_t need);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::size_t size() const noexcept { return list_.size(); }
  [[nodiscard]] const std::shared_ptr<LockMember>& operator[](std::size_t member) const noexcept {
    return list_[member];
  }
  /// How many must be held.
  [[nodiscard]] std::size_t need() const noexcept { return need_; }
  /// True when every member is needed, so that an error of any member is an error of the whole.
  [[nodiscard]] bool needsAll() const noexcept { return need_ == list_.size(); }

  [[nodiscard]] const std::shared_ptr<Env>& env() const noexcept { return list_.front()->env(); }
  [[nodiscard]] Clock::time_point now() const noexcept { return env()->now(); }
  /// The longest of the members' times, or the shortest.
  [[nodiscard]] std::chrono::milliseconds longest(
      std::chrono::milliseconds LockLimits::*time) const;
  [[nodiscard]] std::chrono::milliseconds shortest(
      std::chrono::milliseconds LockLimits::*time) const;

  /// As LockMember::callAt(), on the loop of a client that is not closed, if there is one.
  void callAt(Clock::time_point when, UniqueFunction<void()> function, std::size_t by = 0);
  /// Runs a handler of the application on the callback thread of the client of the member that was
  /// named first.
  void runHandler(UniqueFunction<void()> handler) const { host_->runHandler(std::move(handler)); }

  /// The reason why no call can be made; empty if there is none.
  [[nodiscard]] std::optional<Error> refuse(bool blocking) const;
  [[nodiscard]] bool refusesBlocking() const noexcept;
  /// As LockBackend::keeps(), of so many members that nobody else can have enough.
  [[nodiscard]] bool keep(OwnerId owner) const;
  /// Adds the name of the whole to an error.
  [[nodiscard]] Error describe(const Error& error) const;

 private:
  const List list_;
  const std::shared_ptr<LockMember> host_;
  const std::size_t need_;
  const std::string name_;
  const std::uint32_t forkGeneration_;
};

/// The members of a group, checked.
/// @throws Error  invalidArgument: no member, one member twice, or one that consists of others
///                itself
[[nodiscard]] GroupMembers::List membersOf(const std::vector<std::shared_ptr<LockBackend>>& locks);

inline auto orderOf(const LockPlace& place) {
  // The name comes first, because two programs may know one node by different addresses. The
  // exclusive side of a read-write lock comes before its shared side, because an owner that reads
  // would wait for itself when it asked for the exclusive side.
  return std::tuple(
      place.name, place.database, place.node, 255 - static_cast<int>(place.kind), place.client);
}

inline GroupMembers::List sorted(GroupMembers::List members) {
  std::stable_sort(members.begin(), members.end(), [](const auto& a, const auto& b) {
    return orderOf(a->place()) < orderOf(b->place());
  });
  return members;
}

inline std::string nameOf(std::string_view kind, const GroupMembers::List& members) {
  std::string name(kind);
  char separator = '(';
  for (const auto& member : members) {
    name += separator;
    name += member->name();
    separator = ',';
  }
  name += ')';
  return name;
}

inline GroupMembers::List membersOf(const std::vector<std::shared_ptr<LockBackend>>& locks) {
  GroupMembers::List members;
  for (const auto& lock : locks) {
    std::shared_ptr<LockMember> member = lock ? lock->member() : nullptr;
    if (!member) {
      ErrorContext context;
      context.key = lock ? lock->name() : std::string();
      throw Error(Errc::invalidArgument,
                  lock ? "a lock that consists of others cannot be part of another one"
                       : "an empty lock cannot be part of another one",
                  std::move(context));
    }
    const LockPlace place = member->place();
    for (const auto& other : members) {
      const LockPlace there = other->place();
      if (std::tie(there.node, there.database, there.name, there.kind) ==
          std::tie(place.node, place.database, place.name, place.kind)) {
        ErrorContext context;
        context.key = member->name();
        context.node = place.node;
        throw Error(Errc::invalidArgument,
                    "a lock cannot be part of another one twice",
                    std::move(context));
      }
    }
    members.push_back(std::move(member));
  }
  if (members.empty()) {
    throw Error(Errc::invalidArgument, "a lock cannot consist of no locks");
  }
  return members;
}

inline GroupMembers::GroupMembers(std::string_view kind, const List& list, std::size_t need)
    : list_(sorted(list)),
      host_(list.front()),
      need_(need),
      name_(nameOf(kind, list)),
      forkGeneration_(forkGeneration()) {}

inline std::chrono::milliseconds GroupMembers::longest(
    std::chrono::milliseconds LockLimits::*time) const {
  auto result = std::chrono::milliseconds::zero();
  for (const auto& member : list_) {
    result = std::max(result, member->limits().*time);
  }
  return result;
}

inline std::chrono::milliseconds GroupMembers::shortest(
    std::chrono::milliseconds LockLimits::*time) const {
  auto result = std::chrono::milliseconds::max();
  for (const auto& member : list_) {
    result = std::min(result, member->limits().*time);
  }
  return result;
}

inline void GroupMembers::callAt(Clock::time_point when,
                                 UniqueFunction<void()> function,
                                 std::size_t by) {
  list_[by]->callAt(
      when, [self = shared_from_this(), when, by, function = std::move(function)]() mutable {
        // A call before its time means that this client was closed; the next one takes over.
        if (self->now() < when && by + 1 < self->size()) {
          self->callAt(when, std::move(function), by + 1);
        } else {
          function();
        }
      });
}

inline std::optional<Error> GroupMembers::refuse(bool blocking) const {
  if (forkGeneration() != forkGeneration_) {
    return describe(Error(
        Errc::forked, "the clients belong to the parent process; create new ones after fork()"));
  }
  if (blocking && refusesBlocking()) {
    return describe(
        Error(Errc::wouldDeadlock,
              "a blocking call on a member's loop thread would wait for itself; use its "
              "async twin"));
  }
  return std::nullopt;
}

inline bool GroupMembers::refusesBlocking() const noexcept {
  return std::any_of(
      list_.begin(), list_.end(), [](const auto& member) { return member->refusesBlocking(); });
}

inline bool GroupMembers::keep(OwnerId owner) const {
  const auto kept = std::count_if(
      list_.begin(), list_.end(), [&](const auto& member) { return member->keeps(owner); });
  return static_cast<std::size_t>(kept) > list_.size() - need_;
}

inline Error GroupMembers::describe(const Error& error) const {
  ErrorContext context;
  context.key = name_;
  return error.withContext(context);
}

}  // namespace rlock::detail
