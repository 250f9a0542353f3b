// SPDX-License-Identifier: Apache-2.0

// Client, the composition root: the one file that puts connections, executor, engine and public
// objects together. A Client is a handle around a ClientCore and has no state of its own. Its
// methods may be called from any thread; get...() makes a handle and sends nothing. Calls on a
// handle that was moved from are refused here, calls after close() and in a forked child by the
// engine.

#include "net/loop.hpp"
#include "net/loop_env.hpp"
#include "net/socket_transports.hpp"
#include "objects/client_core.hpp"
#include "objects/moved_from.hpp"
#include "objects/operations.hpp"
#include <rlock/client.hpp>
#include <rlock/detail/base/fork.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/engine/name_walk.hpp>
#include <rlock/detail/engine/permit_semaphore.hpp>
#include <rlock/detail/engine/scripted_counter.hpp>
#include <rlock/detail/engine/scripted_lock.hpp>
#include <rlock/detail/engine/scripted_tokens.hpp>
#include <rlock/detail/executor/fair_lock_scripts.hpp>
#include <rlock/detail/executor/fenced_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>
#include <rlock/detail/executor/read_write_scripts.hpp>
#include <rlock/detail/executor/simple_scripts.hpp>
#include <rlock/detail/executor/spin_scripts.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <memory>
#include <utility>

namespace rlock {

namespace {

constexpr std::size_t kLongestName = std::size_t{64} << 10;

void checkName(std::string_view name) {
  if (name.empty() || name.size() > kLongestName) {
    ErrorContext context;
    context.key = name;
    throw Error(
        Errc::invalidArgument,
        fmt::format(
            "a name of {} bytes is not between 1 and {} bytes long", name.size(), kLongestName),
        std::move(context));
  }
}

/// In a cluster one script can use the keys of one slot only.
void checkSlot(const detail::ClientCore& core, std::string_view name, bool latch = false) {
  if (core.engine()->options().topology != Topology::cluster ||
      (latch ? detail::latchStaysInSlot(name) : detail::staysInSlot(name))) {
    return;
  }
  ErrorContext context;
  context.key = name;
  throw Error(Errc::invalidArgument,
              latch
                  ? "in a cluster the name of a latch must have no braces, or its channel would be "
                    "in another slot"
                  : "in a cluster a name that has braces must have a part like {tag} first, or its "
                    "keys would be in several slots",
              std::move(context));
}

}  // namespace

Client Client::connect(std::string_view uri) {
  return connect(Options::fromUri(uri));
}

Client Client::connect(const Options& options) {
  options.validate();
  const auto log = std::make_shared<const detail::Logger>(options.log, options.logLevel);
  const bool ownsLoop = options.loop == nullptr;
  const auto loop =
      ownsLoop ? detail::net::Loop::createOwned("rlock") : detail::net::Loop::adopt(options.loop);
  loop->setErrorHook([log](const char* text) { log->write(LogLevel::error, text); });
  auto core = std::make_shared<detail::ClientCore>(
      detail::ClientWorld{std::make_shared<detail::net::LoopEnv>(loop),
                          detail::net::socketTransports(loop, options, log),
                          ownsLoop},
      detail::newUuid(),
      options,
      log);
  core->open(options);
  return Client(std::move(core));
}

Client::Client(std::shared_ptr<detail::ClientCore> core) noexcept : core_(std::move(core)) {}

Client::Client(Client&&) noexcept = default;

Client& Client::operator=(Client&& other) noexcept {
  if (this != &other) {
    Client old(std::move(*this));
    core_ = std::move(other.core_);
  }
  return *this;
}

Client::~Client() {
  if (!core_) {
    return;
  }
  if (core_->forked()) {
    // This copy contains the parent's mutexes in whatever state they were at fork(), and none of
    // the parent's threads. Nothing of it may be touched, so it is not destroyed either.
    core_->abandon();
    detail::keepForever(std::move(core_));
    return;
  }
  core_->closeOnDestruction();
}

const std::shared_ptr<detail::ClientCore>& Client::core() const {
  return detail::present(core_);
}

RLock Client::getLock(std::string_view name) {
  checkName(name);
  checkSlot(*core(), name);
  return core()->lock(std::make_shared<detail::LockScripts>(name));
}

RLock Client::getFairLock(std::string_view name) {
  checkName(name);
  checkSlot(*core(), name);
  return core()->lock(std::make_shared<detail::FairLockScripts>(
      name, core()->engine()->options().fairWaiterLease, true));
}

RLock Client::getNonReentrantLock(std::string_view name) {
  checkName(name);
  checkSlot(*core(), name);
  detail::LockTraits traits;
  traits.reentrant = false;
  return core()->lock(std::make_shared<detail::LockScripts>(name, traits));
}

RLock Client::getNonReentrantFairLock(std::string_view name) {
  checkName(name);
  checkSlot(*core(), name);
  return core()->lock(std::make_shared<detail::FairLockScripts>(
      name, core()->engine()->options().fairWaiterLease, false));
}

std::optional<LockInfo> Client::inspect(std::string_view name) {
  return inspectAsync(name).get();
}

Operation<std::optional<LockInfo>> Client::inspectAsync(std::string_view name) {
  using Info = std::optional<LockInfo>;
  if (!core_) {
    return detail::movedFrom<Info>();
  }
  checkName(name);
  checkSlot(*core_, name);
  return detail::makeOperation<Info>(
      [engine = core()->engine(), name = std::string(name)] {
        return detail::NameWalk::inspect(engine, name);
      },
      [engine = core()->engine(),
       name = std::string(name)](detail::UniqueFunction<void(Result<Info>)> handler) {
        detail::NameWalk::inspectAsync(engine, name, std::move(handler));
      });
}

std::vector<LockInfo> Client::list(std::string_view pattern) {
  return listAsync(pattern).get();
}

Operation<std::vector<LockInfo>> Client::listAsync(std::string_view pattern) {
  if (!core_) {
    return detail::movedFrom<std::vector<LockInfo>>();
  }
  auto walk = std::make_shared<detail::NameWalk>(core()->engine(), pattern);
  return detail::makeOperation<std::vector<LockInfo>>(
      [walk] { return walk->run(); },
      [walk](detail::NameWalk::Handler handler) { walk->start(std::move(handler)); });
}

PermitExpirableSemaphore Client::getPermitExpirableSemaphore(std::string_view name) {
  checkName(name);
  checkSlot(*core(), name);
  return PermitExpirableSemaphore(
      std::make_shared<detail::PermitSemaphore>(core()->engine(), name));
}

Semaphore Client::getSemaphore(std::string_view name) {
  checkName(name);
  checkSlot(*core(), name);
  return Semaphore(std::make_shared<detail::ScriptedSemaphore>(core()->engine(), name));
}

CountDownLatch Client::getCountDownLatch(std::string_view name) {
  checkName(name);
  checkSlot(*core(), name, true);
  return CountDownLatch(std::make_shared<detail::ScriptedLatch>(core()->engine(), name));
}

ReadWriteLock Client::getReadWriteLock(std::string_view name) {
  checkName(name);
  checkSlot(*core(), name);
  return {core()->lock(std::make_shared<detail::ReadLockScripts>(name)),
          core()->lock(std::make_shared<detail::WriteLockScripts>(name))};
}

FencedLock Client::getFencedLock(std::string_view name) {
  checkName(name);
  checkSlot(*core(), name);
  auto scripts = std::make_shared<const detail::FencedScripts>(
      name, core()->engine()->options().fencingTokenRetention);
  return FencedLock(std::make_shared<detail::ScriptedLock>(core()->engine(), scripts),
                    std::make_shared<detail::ScriptedTokens>(core()->engine(), scripts));
}

RLock Client::getSpinLock(std::string_view name, const BackOff& backOff) {
  checkName(name);
  checkSlot(*core(), name);
  return core()->lock(std::make_shared<detail::SpinScripts>(name, backOff));
}

RLock Client::getSimpleLock(std::string_view name) {
  checkName(name);
  checkSlot(*core(), name);
  return core()->lock(std::make_shared<detail::SimpleScripts>(name));
}

const std::string& Client::id() const& {
  return core()->engine()->clientId();
}

std::string Client::id() const&& {
  return core()->engine()->clientId();
}

Stats Client::stats() const {
  // In a child the engine's mutexes may be locked for ever by threads that only the parent has.
  return core()->forked() ? Stats() : core()->engine()->stats();
}

void Client::close(std::chrono::milliseconds deadline) {
  if (!core()->forked()) {
    core()->close(deadline);
  }
}

}  // namespace rlock
