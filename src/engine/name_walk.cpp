// SPDX-License-Identifier: Apache-2.0
#include "engine/name_walk.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace rlock::detail {

ScriptedObject NameWalk::objectOf(const std::shared_ptr<LockEngine>& engine,
                                  std::string_view name) {
  return {engine, std::make_shared<LockScripts>(name)};
}

void NameWalk::composeLook(Call& call, const LockScripts& scripts, std::string_view /*owner*/) {
  composeInspect(call, scripts.name);
}

NameWalk::ParseLook NameWalk::parseLook(const ScriptedObject& object) {
  return [scripts = object.scripts()](const Reply& reply) {
    return parseInspect(scripts->name, reply);
  };
}

Result<NameWalk::Info> NameWalk::inspect(const std::shared_ptr<LockEngine>& engine,
                                         std::string_view name) {
  const ScriptedObject object = objectOf(engine, name);
  return object.ask<Info>({}, composeLook, parseLook(object));
}

void NameWalk::inspectAsync(const std::shared_ptr<LockEngine>& engine,
                            std::string_view name,
                            UniqueFunction<void(Result<Info>)> handler) {
  const ScriptedObject object = objectOf(engine, name);
  object.askAsync<Info>({}, std::move(handler), composeLook, parseLook(object));
}

NameWalk::NameWalk(std::shared_ptr<LockEngine> engine, std::string_view pattern)
    : object_(objectOf(engine, pattern)), pattern_(pattern) {}

std::vector<std::string> NameWalk::fresh(std::vector<std::string> names) {
  std::erase_if(names, [this](const std::string& name) { return !seen_.insert(name).second; });
  return names;
}

void NameWalk::keep(Info info) {
  if (info && info->kind != LockKind::foreign) {
    found_.push_back(std::move(*info));
  }
}

NameWalk::Found NameWalk::sorted() {
  std::sort(found_.begin(), found_.end(), [](const LockInfo& a, const LockInfo& b) {
    return a.name < b.name;
  });
  return std::move(found_);
}

Result<NameWalk::Found> NameWalk::run() {
  deadline_ = object_.engine().now() + object_.engine().callTimeout();
  do {
    Result<ScanStep> step = object_.ask<ScanStep>(
        {},
        [this](Call& call, const LockScripts&, std::string_view) {
          composeScan(call, cursor_, pattern_);
        },
        parseScan,
        deadline_);
    if (!step.has_value()) {
      return soFar(step.error());
    }
    cursor_ = step->cursor;
    for (const std::string& name : fresh(std::move(step->names))) {
      const ScriptedObject object = objectOf(object_.enginePtr(), name);
      Result<Info> info = object.ask<Info>({}, composeLook, parseLook(object), deadline_);
      if (!info.has_value()) {
        return soFar(info.error());
      }
      ++looks_;
      keep(std::move(*info));
    }
  } while (cursor_ != "0");
  return sorted();
}

void NameWalk::start(Handler handler) {
  handler_ = std::move(handler);
  deadline_ = object_.engine().now() + object_.engine().callTimeout();
  step();
}

void NameWalk::step() {
  object_.askAsync<ScanStep>(
      {},
      [self = shared_from_this()](Result<ScanStep> step) { self->stepDone(std::move(step)); },
      [this](Call& call, const LockScripts&, std::string_view) {
        composeScan(call, cursor_, pattern_);
      },
      parseScan,
      deadline_);
}

void NameWalk::stepDone(Result<ScanStep> step) {
  if (!step.has_value()) {
    handler_(Result<Found>(soFar(step.error())));
    return;
  }
  cursor_ = step->cursor;
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
void NameWalk::lookOn() {
  for (;;) {
    std::string name;
    {
      const MutexLock lock(mutex_);
      if (error_ || names_.empty() || pending_ > kAtOnce) {
        return;
      }
      name = std::move(names_.back());
      names_.pop_back();
      ++pending_;
    }
    const ScriptedObject object = objectOf(object_.enginePtr(), name);
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
        deadline_);
  }
}

void NameWalk::lookedAt(Result<Info> info) {
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
    if (!error_ && !names_.empty() && pending_ <= kAtOnce) {
      continue;
    }
    if (--pending_ > 0) {
      return;
    }
    error = error_;
    break;
  }
  if (error) {
    handler_(Result<Found>(soFar(*error)));
  } else if (cursor_ == "0") {
    handler_(Result<Found>(sorted()));
  } else {
    step();
  }
}

Error NameWalk::soFar(const Error& error) const {
  return {error.errc(),
          fmt::format("{}; {} names had been looked at and {} locks found, the walk was not over",
                      error.message(),
                      looks_,
                      found_.size()),
          error.context()};
}

}  // namespace rlock::detail
