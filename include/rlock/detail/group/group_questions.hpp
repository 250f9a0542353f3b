// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/group/group_members.hpp>
#include <rlock/error.hpp>
#include <rlock/owner.hpp>
#include <rlock/result.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace rlock::detail {

/// Collects the answers of all members and passes them on when the last one is there.
template <class T>
class Gathering {
 public:
  using Done = UniqueFunction<void(std::vector<Result<T>>)>;

  Gathering(std::size_t members, Done done) : answers_(members), done_(std::move(done)) {
    // Made now: there may be no memory when the last answer is there.
    room_.reserve(members);
  }

  void put(std::size_t member, Result<T> answer);

 private:
  AnnotatedMutex mutex_;
  std::vector<std::optional<Result<T>>> answers_ RLOCK_GUARDED_BY(mutex_);
  std::size_t answered_ RLOCK_GUARDED_BY(mutex_) = 0;
  std::vector<Result<T>> room_ RLOCK_GUARDED_BY(mutex_);
  Done done_;
};

template <class T>
void Gathering<T>::put(std::size_t member, Result<T> answer) {
  std::vector<Result<T>> all;
  {
    const MutexLock lock(mutex_);
    answers_[member].emplace(std::move(answer));
    if (++answered_ < answers_.size()) {
      return;
    }
    all.swap(room_);
    for (auto& each : answers_) {
      all.push_back(std::move(*each));
    }
  }
  done_(std::move(all));
}

/// The questions of a lock that consists of others: each is put to all members at the same time,
/// and their answers are combined into one when the last of them is there. `done` is called once,
/// on the loop thread of some member's client, or within the call.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class GroupQuestions {
 public:
  template <class T>
  using Done = UniqueFunction<void(Result<T>)>;
  using TimeToLive = LockBackend::TimeToLive;

  explicit GroupQuestions(std::shared_ptr<const GroupMembers> members) noexcept
      : members_(std::move(members)) {}

  void forceRelease(Done<bool> done) const;
  void isLocked(Done<bool> done) const;
  void holdCount(OwnerId owner, Done<int> done) const;
  void timeToLive(Done<TimeToLive> done) const;

 private:
  template <class T>
  using Handler = LockBackend::Handler<T>;
  template <class T>
  using Answers = std::vector<Result<T>>;

  template <class T, class Ask, class Combine>
  void askAll(Ask ask, Combine combine, Done<T> done) const;
  template <class T>
  [[nodiscard]] static Result<T> common(const GroupMembers& members, const Answers<T>& answers);
  [[nodiscard]] static Result<bool> any(const GroupMembers& members, const Answers<bool>& answers);
  [[nodiscard]] static Error tooFew(const GroupMembers& members,
                                    const Error& first,
                                    std::size_t answered);

  const std::shared_ptr<const GroupMembers> members_;
};

template <class T, class Ask, class Combine>
void GroupQuestions::askAll(Ask ask, Combine combine, Done<T> done) const {
  const GroupMembers& all = *members_;
  noMemory();  // made now, while its caller can still be told by an exception
  auto gathering = std::make_shared<Gathering<T>>(
      all.size(),
      [members = members_, combine, done = std::move(done)](Answers<T> answers) mutable {
        std::optional<Result<T>> result;
        if (!ifThereIsMemorySoon([&] { result.emplace(combine(*members, answers)); })) {
          result.emplace(noMemory());
        }
        done(std::move(*result));
      });
  for (std::size_t i = 0; i < all.size(); ++i) {
    ask(*all[i], [gathering, i](Result<T> answer) { gathering->put(i, std::move(answer)); });
  }
}

inline Error GroupQuestions::tooFew(const GroupMembers& members,
                                    const Error& first,
                                    std::size_t answered) {
  if (members.needsAll()) {
    return first;
  }
  return members.describe(Error(Errc::noQuorum,
                                fmt::format("of {} nodes only {} answered; one said: {}",
                                            members.size(),
                                            answered,
                                            first.message())));
}

/// The greatest value that at least as many members reach as are needed: with all needed the
/// smallest value, with a majority needed the smallest of the best majority.
template <class T>
Result<T> GroupQuestions::common(const GroupMembers& members, const Answers<T>& answers) {
  std::vector<T> values;
  const Error* first = nullptr;
  for (const Result<T>& answer : answers) {
    if (answer.has_value()) {
      values.push_back(*answer);
    } else if (first == nullptr) {
      first = &answer.error();
    }
  }
  if (first != nullptr && values.size() < members.need()) {
    return tooFew(members, *first, values.size());
  }
  std::sort(values.begin(), values.end(), std::greater<T>());
  return T(values[members.need() - 1]);
}

/// Whether it is so for one member.
inline Result<bool> GroupQuestions::any(const GroupMembers& members, const Answers<bool>& answers) {
  std::size_t answered = 0;
  bool result = false;
  const Error* first = nullptr;
  for (const Result<bool>& answer : answers) {
    if (answer.has_value()) {
      ++answered;
      result = result || *answer;
    } else if (first == nullptr) {
      first = &answer.error();
    }
  }
  if (first != nullptr && answered < members.need()) {
    return tooFew(members, *first, answered);
  }
  return result;
}

inline void GroupQuestions::forceRelease(Done<bool> done) const {
  askAll<bool>([](LockMember& member,
                  Handler<bool> handler) { member.forceReleaseAsync(std::move(handler)); },
               &any,
               std::move(done));
}

inline void GroupQuestions::isLocked(Done<bool> done) const {
  askAll<bool>(
      [](LockMember& member, Handler<bool> handler) { member.isLockedAsync(std::move(handler)); },
      &common<bool>,
      std::move(done));
}

inline void GroupQuestions::holdCount(OwnerId owner, Done<int> done) const {
  askAll<int>([owner](LockMember& member,
                      Handler<int> handler) { member.holdCountAsync(owner, std::move(handler)); },
              &common<int>,
              std::move(done));
}

inline void GroupQuestions::timeToLive(Done<TimeToLive> done) const {
  askAll<TimeToLive>(
      [](LockMember& member, Handler<TimeToLive> handler) {
        member.timeToLiveAsync(std::move(handler));
      },
      &common<TimeToLive>,
      std::move(done));
}

}  // namespace rlock::detail
