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
#include <rlock/detail/base/name_map.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/engine/name_walk.hpp>
#include <rlock/detail/engine/permit_semaphore.hpp>
#include <rlock/detail/engine/scripted_counter.hpp>
#include <rlock/detail/engine/scripted_lock.hpp>
#include <rlock/detail/engine/scripted_tokens.hpp>
#include <rlock/detail/engine/server_questions.hpp>
#include <rlock/detail/executor/fair_lock_scripts.hpp>
#include <rlock/detail/executor/fenced_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>
#include <rlock/detail/executor/read_write_scripts.hpp>
#include <rlock/detail/executor/simple_scripts.hpp>
#include <rlock/detail/executor/spin_scripts.hpp>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace rlock {

namespace {

/// In a cluster one script can use the keys of one slot only.
/// @param onServer  the server's name for it
void checkSlot(const detail::LockEngine& engine,
               std::string_view name,
               std::string_view onServer,
               bool latch = false) {
  if (engine.options().topology != Topology::cluster ||
      (latch ? detail::latchStaysInSlot(onServer) : detail::staysInSlot(onServer))) {
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

/// The scripts for a name of the application, by the server's name for it.
template <class Scripts, class... More>
std::shared_ptr<Scripts> scriptsFor(const detail::LockEngine& engine,
                                    std::string_view name,
                                    More&&... more) {
  const std::string onServer = detail::NameMap(engine.options()).toServer(name);
  checkSlot(engine, name, onServer, std::is_same_v<Scripts, detail::LatchScripts>);
  auto scripts = std::make_shared<Scripts>(onServer, std::forward<More>(more)...);
  if (onServer != name) {
    scripts->setTitle(name);
  }
  return scripts;
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
  return detail::connectIn({std::make_shared<detail::net::LoopEnv>(loop),
                            detail::net::socketTransports(loop, options, log),
                            ownsLoop},
                           options,
                           log);
}

Client detail::connectIn(ClientWorld world,
                         const Options& options,
                         const std::shared_ptr<const Logger>& log) {
  auto core = std::make_shared<ClientCore>(std::move(world), newUuid(), options, log);
  core->open(options);
  return ClientAccess::make(std::move(core));
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
  detail::LockTraits traits;
  traits.handsOver = true;
  return core()->lock(scriptsFor<detail::LockScripts>(*core()->engine(), name, traits));
}

RLock Client::getFairLock(std::string_view name) {
  const detail::LockEngine& engine = *core()->engine();
  return core()->lock(
      scriptsFor<detail::FairLockScripts>(engine, name, engine.options().fairWaiterLease, true));
}

RLock Client::getNonReentrantLock(std::string_view name) {
  detail::LockTraits traits;
  traits.reentrant = false;
  traits.handsOver = true;
  return core()->lock(scriptsFor<detail::LockScripts>(*core()->engine(), name, traits));
}

RLock Client::getNonReentrantFairLock(std::string_view name) {
  const detail::LockEngine& engine = *core()->engine();
  return core()->lock(
      scriptsFor<detail::FairLockScripts>(engine, name, engine.options().fairWaiterLease, false));
}

std::optional<LockInfo> Client::inspect(std::string_view name) {
  return inspectAsync(name).get();
}

Operation<std::optional<LockInfo>> Client::inspectAsync(std::string_view name) {
  using Info = std::optional<LockInfo>;
  if (!core_) {
    return detail::movedFrom<Info>();
  }
  const auto& engine = core()->engine();
  const std::string onServer = detail::NameMap(engine->options()).toServer(name);
  checkSlot(*engine, name, onServer);
  return detail::makeOperation<Info>(
      [engine, onServer, title = std::string(name)] {
        return detail::NameWalk::inspect(engine, onServer, title);
      },
      [engine, onServer, title = std::string(name)](
          detail::UniqueFunction<void(Result<Info>)> handler) {
        detail::NameWalk::inspectAsync(engine, onServer, title, std::move(handler));
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
  const auto& engine = core()->engine();
  return PermitExpirableSemaphore(std::make_shared<detail::PermitSemaphore>(
      engine, scriptsFor<detail::PermitScripts>(*engine, name, engine->idempotencyKeys())));
}

Semaphore Client::getSemaphore(std::string_view name) {
  const auto& engine = core()->engine();
  return Semaphore(std::make_shared<detail::ScriptedSemaphore>(
      engine, scriptsFor<detail::SemaphoreScripts>(*engine, name, engine->idempotencyKeys())));
}

CountDownLatch Client::getCountDownLatch(std::string_view name) {
  const auto& engine = core()->engine();
  return CountDownLatch(std::make_shared<detail::ScriptedLatch>(
      engine, scriptsFor<detail::LatchScripts>(*engine, name, engine->idempotencyKeys())));
}

ReadWriteLock Client::getReadWriteLock(std::string_view name) {
  const detail::LockEngine& engine = *core()->engine();
  return {core()->lock(scriptsFor<detail::ReadLockScripts>(engine, name)),
          core()->lock(scriptsFor<detail::WriteLockScripts>(engine, name))};
}

FencedLock Client::getFencedLock(std::string_view name) {
  const auto& engine = core()->engine();
  const std::shared_ptr<const detail::FencedScripts> scripts =
      scriptsFor<detail::FencedScripts>(*engine, name, engine->options().fencingTokenRetention);
  return FencedLock(std::make_shared<detail::ScriptedLock>(engine, scripts),
                    std::make_shared<detail::ScriptedTokens>(engine, scripts));
}

RLock Client::getSpinLock(std::string_view name, const BackOff& backOff) {
  return core()->lock(scriptsFor<detail::SpinScripts>(*core()->engine(), name, backOff));
}

RLock Client::getSimpleLock(std::string_view name) {
  return core()->lock(scriptsFor<detail::SimpleScripts>(*core()->engine(), name));
}

bool Client::connected() const noexcept {
  return core_ && !core_->forked() && core_->engine()->dispatcher().liveNodes().connected();
}

Capabilities Client::capabilities() const {
  // In a child the mutex may be locked for ever.
  return core()->forked() ? Capabilities()
                          : core()->engine()->dispatcher().liveNodes().capabilities();
}

std::chrono::nanoseconds Client::ping() {
  return pingAsync().get();
}

Operation<std::chrono::nanoseconds> Client::pingAsync() {
  if (!core_) {
    return detail::movedFrom<std::chrono::nanoseconds>();
  }
  const auto server = std::make_shared<detail::ServerQuestions>(core()->engine());
  return detail::makeOperation<std::chrono::nanoseconds>(
      [server] { return server->ping(); },
      [server](detail::ServerQuestions::PingHandler handler) {
        server->pingAsync(std::move(handler));
      });
}

void Client::refreshCredentials() {
  refreshCredentialsAsync().get();
}

Operation<void> Client::refreshCredentialsAsync() {
  if (!core_) {
    return detail::movedFrom<void>();
  }
  const auto server = std::make_shared<detail::ServerQuestions>(core()->engine());
  return detail::makeOperation<void>([server] { return server->authenticate(); },
                                     [server](detail::ServerQuestions::DoneHandler handler) {
                                       server->authenticateAsync(std::move(handler));
                                     });
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

std::vector<TopName> Client::topNames(TopBy order, std::size_t most) const {
  return core()->forked() ? std::vector<TopName>() : core()->engine()->telemetry().top(order, most);
}

void Client::close(std::chrono::milliseconds deadline) {
  if (!core()->forked()) {
    core()->close(deadline);
  }
}

}  // namespace rlock
