// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/name_map.hpp>
#include <rlock/detail/engine/scripted_object.hpp>
#include <rlock/detail/executor/inspection_scripts.hpp>
#include <rlock/inspection.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// Walks through all names that match a pattern and looks at each, without ever keeping the server
/// from other work, for callTimeout at most. An error says how far it came.
///
/// ServerQuestions makes one for each call. Each step is a small request of its own: SCAN, then one
/// script for each name that it found, so many at once (kAtOnce). The next step begins in the last
/// handler of the one before, and the handler of the whole is called once. The walk is one
/// operation of the application: it is refused for too much work with its first request or not at
/// all, and takes no more than half of Options::maxOperations from the others.
///
/// **Thread safety:** One thread at a time; its own handlers may run on several.
class NameWalk : public std::enable_shared_from_this<NameWalk> {
 public:
  using Info = std::optional<LockInfo>;
  using Found = std::vector<LockInfo>;
  using Handler = UniqueFunction<void(Result<Found>)>;

  NameWalk(std::shared_ptr<LockEngine> engine, std::string_view pattern);
  NameWalk(const NameWalk&) = delete;
  NameWalk& operator=(const NameWalk&) = delete;
  /// Without memory a walk in the background ends where it is, and its handler is told here.
  ~NameWalk();

  ///@{
  /// Looks at one name.
  /// @param title  the application's name for it
  static Result<Info> inspect(const std::shared_ptr<LockEngine>& engine,
                              std::string_view name,
                              std::string_view title);
  static void inspectAsync(const std::shared_ptr<LockEngine>& engine,
                           std::string_view name,
                           std::string_view title,
                           UniqueFunction<void(Result<Info>)> handler);
  ///@}

  /// Walks on the calling thread.
  Result<Found> run();
  /// Walks in the background.
  void start(Handler handler);

 private:
  using ParseLook = std::function<std::optional<Info>(const Reply&)>;

  using Part = ScriptedObject::Part;

  /// So many questions of one walk are under way at once, where Options::maxOperations has room.
  static constexpr std::size_t kAtOnce = 64;

  static ScriptedObject objectOf(const std::shared_ptr<LockEngine>& engine,
                                 std::string_view name,
                                 std::string_view title);
  /// One of the names that the walk has found.
  [[nodiscard]] ScriptedObject found(std::string_view name) const {
    const std::shared_ptr<LockEngine>& engine = object_.enginePtr();
    return objectOf(engine, name, NameMap(engine->options()).toApplication(name));
  }
  [[nodiscard]] std::size_t atOnce() const noexcept {
    const auto half = static_cast<std::size_t>(object_.engine().options().maxOperations) / 2;
    return std::clamp<std::size_t>(half, 1, kAtOnce);
  }
  [[nodiscard]] Part part() const noexcept { return begun_ ? Part::further : Part::first; }
  /// Finds the parts, unless they are known.
  void findParts();
  void composeStep(Call& call) const;
  /// Whether all parts have been walked through.
  bool over() noexcept;
  static void composeLook(Call& call, const LockScripts& scripts, std::string_view owner);
  static ParseLook parseLook(const ScriptedObject& object);

  void step();
  void stepDone(Result<ScanStep> step);
  void lookOn();
  void lookedAt(Result<Info> info);
  void tell(Result<Found> result) { std::exchange(handler_, nullptr)(std::move(result)); }
  [[nodiscard]] Error soFar(const Error& error) const;
  [[nodiscard]] std::vector<std::string> fresh(std::vector<std::string> names);
  void keep(Info info);
  [[nodiscard]] Found sorted();

  const ScriptedObject object_;
  const std::string pattern_;
  LockEngine::Clock::time_point deadline_{};  // from the start on
  // Of all keys, each with a walk of its own. Empty until the first answer where a cluster's map
  // has not been read yet: the first request waits for the map.
  std::vector<std::uint16_t> parts_;
  std::size_t part_ = 0;
  std::string cursor_ = "0";
  bool begun_ = false;  // its first request has an answer
  std::set<std::string> seen_;
  // While it walks in the background, mutex_ is held for these two as well where several handlers
  // may run; otherwise there is one thread.
  Found found_;
  std::size_t looks_ = 0;
  // While it walks in the background.
  AnnotatedMutex mutex_;
  std::vector<std::string> names_ RLOCK_GUARDED_BY(mutex_);  // still to be looked at
  std::size_t pending_ RLOCK_GUARDED_BY(mutex_) = 0;         // questions under way
  std::optional<Error> error_ RLOCK_GUARDED_BY(mutex_);      // the first
  Handler handler_;
};

inline NameWalk::~NameWalk() {
  if (handler_) {
    object_.engine().callbacks().reject(
        [handler = std::move(handler_)]() mutable { handler(Result<Found>(memoryError())); });
  }
}

inline ScriptedObject NameWalk::objectOf(const std::shared_ptr<LockEngine>& engine,
                                         std::string_view name,
                                         std::string_view title) {
  const auto scripts = std::make_shared<LockScripts>(name);
  scripts->setTitle(title);
  return {engine, scripts};
}

inline void NameWalk::composeLook(Call& call,
                                  const LockScripts& scripts,
                                  std::string_view /*owner*/) {
  composeInspect(call, scripts.name);
}

inline NameWalk::ParseLook NameWalk::parseLook(const ScriptedObject& object) {
  return [scripts = object.scripts()](const Reply& reply) {
    return parseInspect(scripts->title(), reply);
  };
}

inline Result<NameWalk::Info> NameWalk::inspect(const std::shared_ptr<LockEngine>& engine,
                                                std::string_view name,
                                                std::string_view title) {
  const ScriptedObject object = objectOf(engine, name, title);
  return object.ask<Info>({}, composeLook, parseLook(object));
}

inline void NameWalk::inspectAsync(const std::shared_ptr<LockEngine>& engine,
                                   std::string_view name,
                                   std::string_view title,
                                   UniqueFunction<void(Result<Info>)> handler) {
  const ScriptedObject object = objectOf(engine, name, title);
  object.askAsync<Info>({}, std::move(handler), composeLook, parseLook(object));
}

inline NameWalk::NameWalk(std::shared_ptr<LockEngine> engine, std::string_view pattern)
    : object_(objectOf(engine, pattern, pattern)),
      pattern_(NameMap(engine->options()).patternToServer(pattern)) {}

/// Parts are in the order of their slots. Slot 0, to which the first request goes without a map, is
/// in the first of them.
inline void NameWalk::findParts() {
  if (parts_.empty()) {
    parts_ = object_.engine().dispatcher().parts();
  }
}

inline void NameWalk::composeStep(Call& call) const {
  composeScan(call, cursor_, pattern_);
  call.setSlot(part_ < parts_.size() ? parts_[part_] : std::uint16_t{0});
}

inline bool NameWalk::over() noexcept {
  return cursor_ == "0" && ++part_ >= parts_.size();
}

inline std::vector<std::string> NameWalk::fresh(std::vector<std::string> names) {
  // A name whose keys would be in several slots of a cluster is no lock.
  const bool cluster = object_.engine().options().topology == Topology::cluster;
  std::erase_if(names, [this, cluster](const std::string& name) {
    return (cluster && !staysInSlot(name)) || !seen_.insert(name).second;
  });
  return names;
}

inline void NameWalk::keep(Info info) {
  if (info && info->kind != LockKind::foreign) {
    found_.push_back(std::move(*info));
  }
}

inline NameWalk::Found NameWalk::sorted() {
  std::sort(found_.begin(), found_.end(), [](const LockInfo& a, const LockInfo& b) {
    return a.name < b.name;
  });
  return std::move(found_);
}

inline Result<NameWalk::Found> NameWalk::run() {
  deadline_ = object_.engine().now() + object_.engine().callTimeout();
  findParts();
  do {
    Result<ScanStep> step = object_.ask<ScanStep>(
        {},
        [this](Call& call, const LockScripts&, std::string_view) { composeStep(call); },
        parseScan,
        deadline_,
        {},
        part());
    if (!step.has_value()) {
      return soFar(step.error());
    }
    begun_ = true;
    cursor_ = step->cursor;
    findParts();
    for (const std::string& name : fresh(std::move(step->names))) {
      const ScriptedObject object = found(name);
      Result<Info> info =
          object.ask<Info>({}, composeLook, parseLook(object), deadline_, {}, Part::further);
      if (!info.has_value()) {
        return soFar(info.error());
      }
      ++looks_;
      keep(std::move(*info));
    }
  } while (!over());
  return sorted();
}

inline void NameWalk::start(Handler handler) {
  handler_ = std::move(handler);
  deadline_ = object_.engine().now() + object_.engine().callTimeout();
  try {
    findParts();
    step();
  } catch (...) {
    // Its caller is told by the exception.
    handler_ = nullptr;
    throw;
  }
}

inline void NameWalk::step() {
  object_.askAsync<ScanStep>(
      {},
      [self = shared_from_this()](Result<ScanStep> step) { self->stepDone(std::move(step)); },
      [this](Call& call, const LockScripts&, std::string_view) { composeStep(call); },
      parseScan,
      deadline_,
      {},
      part());
}

inline void NameWalk::stepDone(Result<ScanStep> step) {
  if (!step.has_value()) {
    tell(soFar(step.error()));
    return;
  }
  begun_ = true;
  cursor_ = step->cursor;
  findParts();
  std::vector<std::string> names = fresh(std::move(step->names));
  {
    const MutexLock lock(mutex_);
    names_ = std::move(names);
    // For this function itself.
    pending_ = 1;
  }
  lookOn();
  lookedAt(Info());
}

/// As many questions at once as are allowed.
inline void NameWalk::lookOn() {
  for (;;) {
    std::string name;
    {
      const MutexLock lock(mutex_);
      if (error_ || names_.empty() || pending_ > atOnce()) {
        return;
      }
      name = std::move(names_.back());
      names_.pop_back();
      ++pending_;
    }
    const ScriptedObject object = found(name);
    object.askAsync<Info>(
        {},
        [self = shared_from_this()](Result<Info> info) {
          {
            const MutexLock lock(self->mutex_);
            ++self->looks_;
          }
          self->lookedAt(std::move(info));
        },
        composeLook,
        parseLook(object),
        deadline_,
        {},
        Part::further);
  }
}

inline void NameWalk::lookedAt(Result<Info> info) {
  {
    const MutexLock lock(mutex_);
    if (info.has_value()) {
      keep(std::move(*info));
    } else if (!error_) {
      error_ = info.error();
    }
  }
  std::optional<Error> error;
  for (;;) {
    lookOn();
    const MutexLock lock(mutex_);
    if (!error_ && !names_.empty() && pending_ <= atOnce()) {
      continue;
    }
    if (--pending_ > 0) {
      return;
    }
    error = error_;
    break;
  }
  if (error) {
    tell(soFar(*error));
  } else if (over()) {
    tell(sorted());
  } else {
    step();
  }
}

inline Error NameWalk::soFar(const Error& error) const {
  return {error.errc(),
          fmt::format("{}; {} names had been looked at and {} locks found, the walk was not over",
                      error.message(),
                      looks_,
                      found_.size()),
          error.context()};
}

}  // namespace rlock::detail
