// SPDX-License-Identifier: Apache-2.0
#include "engine/lock_engine.hpp"
#include "engine/name_walk.hpp"
#include "engine/permit_semaphore.hpp"
#include "engine/scripted_counter.hpp"
#include "engine/scripted_lock.hpp"
#include "engine/scripted_tokens.hpp"
#include "executor/fair_lock_scripts.hpp"
#include "executor/fenced_scripts.hpp"
#include "executor/read_write_scripts.hpp"
#include "executor/simple_scripts.hpp"
#include "executor/spin_scripts.hpp"
#include "net/loop.hpp"
#include "objects/moved_from.hpp"
#include "objects/operations.hpp"
#include <rlock/client.hpp>
#include <rlock/detail/base/fork.hpp>
#include <rlock/duration.hpp>

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>
#include <random>
#include <sys/random.h>
#include <utility>

namespace rlock {

namespace detail {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLongestName = std::size_t{64} << 10;

/// A version 4 UUID in lower case. Its bits come from the kernel: time and process id are not
/// enough to tell apart containers that start together.
std::string newUuid() {
  std::array<unsigned char, 16> bytes{};
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t count = ::getrandom(bytes.data() + filled, bytes.size() - filled, 0);
    if (count > 0) {
      filled += static_cast<std::size_t>(count);
    } else if (errno != EINTR) {
      std::random_device device;
      for (auto& byte : bytes) {
        byte = static_cast<unsigned char>(device());
      }
      break;
    }
  }
  bytes[6] = static_cast<unsigned char>((bytes[6] & 0x0fU) | 0x40U);
  bytes[8] = static_cast<unsigned char>((bytes[8] & 0x3fU) | 0x80U);
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) {
      text += '-';
    }
    text += fmt::format("{:02x}", bytes[i]);
  }
  return text;
}

/// One thread waits, another says something once.
class OneShot {
 public:
  void set() {
    {
      const std::lock_guard lock(mutex_);
      set_ = true;
    }
    changed_.notify_all();
  }
  bool waitUntil(Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline, [this] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

}  // namespace

/// Builds the layers and takes them down again.
class ClientCore : public std::enable_shared_from_this<ClientCore> {
 public:
  explicit ClientCore(const Options& options)
      : log_(std::make_shared<Logger>(options.log, options.logLevel)),
        forkGeneration_(forkGeneration()),
        ownsLoop_(options.loop == nullptr),
        closeTimeout_(options.closeTimeout),
        loop_(ownsLoop_ ? net::Loop::createOwned("rlock") : net::Loop::adopt(options.loop)),
        engine_(std::make_shared<LockEngine>(newUuid(), options, log_, loop_)),
        disconnect_(*loop_, [this] { engine_->disconnect(); }) {
    loop_->setErrorHook([log = log_](const char* text) { log->write(LogLevel::error, text); });
  }

  void open(const Options& options) {
    if (!ownsLoop_) {
      // The caller's loop may not run before this returns.
      loop_->post([engine = engine_, log = log_] {
        engine->open([log](const Result<void>& result) {
          if (!result.has_value()) {
            log->write(LogLevel::warning,
                       std::string("no connection, trying again: ") + result.error().what());
          }
        });
      });
      return;
    }
    auto outcome = std::make_shared<std::pair<OneShot, std::optional<Error>>>();
    loop_->post([engine = engine_, outcome] {
      engine->open([outcome](const Result<void>& result) {
        if (!result.has_value()) {
          outcome->second = result.error();
        }
        outcome->first.set();
      });
    });
    // The connection layer keeps the limit itself; the margin is for its own scheduling.
    const bool decided = outcome->first.waitUntil(Clock::now() + options.connectTimeout + kMargin);
    if (!decided) {
      close(std::chrono::milliseconds(0));
      throw Error(Errc::connectionFailed, "no connection within the connect timeout");
    }
    if (outcome->second) {
      const Error error = *outcome->second;
      close(std::chrono::milliseconds(0));
      throw Error(error);
    }
  }

  void close(std::chrono::milliseconds limit) {
    if (closing_.exchange(true)) {
      return;
    }
    engine_->markClosed();
    try {
      closeInOrder(limit);
    } catch (const std::bad_alloc&) {
      // What is held expires by itself.
      disconnect_.post(shared_from_this());
      loop_->stop(Clock::now());
    }
  }

  void closeInOrder(std::chrono::milliseconds limit) {
    const auto deadline = Duration(limit).deadlineFrom(Clock::now());
    auto done = std::make_shared<OneShot>();
    const auto finish = [self = shared_from_this(), done] {
      self->engine_->disconnect();
      // What was told of the end may have something left to say on the loop.
      self->loop_->post([self, done] { self->loop_->post([done] { done->set(); }); });
    };
    const bool onLoop = loop_->onLoopThread();
    loop_->post([self = shared_from_this(), deadline, finish, onLoop] {
      self->engine_->shutDown(deadline, [self, finish, onLoop] {
        finish();
        if (onLoop) {
          self->loop_->post(
              [self] { self->loop_->post([self] { self->loop_->stop(Clock::now()); }); });
        }
      });
    });
    if (onLoop) {
      return;
    }
    const auto until = Duration(kMargin).deadlineFrom(deadline);
    if (!done->waitUntil(until)) {
      // The loop is late: it stops before the timer that would end what is under way.
      disconnect_.post(shared_from_this());
    }
    loop_->stop(until);
  }

  void closeOnDestruction() noexcept {
    try {
      close(closeTimeout_);
    } catch (...) {
      log_->write(LogLevel::error, "closing the client failed");
    }
  }

  [[nodiscard]] bool forked() const noexcept { return forkGeneration() != forkGeneration_; }
  void abandon() noexcept { loop_->abandonInChild(); }
  [[nodiscard]] const std::shared_ptr<LockEngine>& engine() const noexcept { return engine_; }
  [[nodiscard]] RLock lock(std::shared_ptr<const LockScripts> scripts) const {
    return RLock(std::make_shared<ScriptedLock>(engine_, std::move(scripts)));
  }

 private:
  static constexpr std::chrono::milliseconds kMargin{40};

  const std::shared_ptr<const Logger> log_;
  const std::uint32_t forkGeneration_;
  const bool ownsLoop_;
  const std::chrono::milliseconds closeTimeout_;
  const std::shared_ptr<net::Loop> loop_;
  const std::shared_ptr<LockEngine> engine_;
  net::LoopTask disconnect_;
  std::atomic<bool> closing_{false};
};

}  // namespace detail

namespace {

void checkName(std::string_view name) {
  if (name.empty() || name.size() > detail::kLongestName) {
    ErrorContext context;
    context.key = name;
    throw Error(Errc::invalidArgument,
                fmt::format("a name of {} bytes is not between 1 and {} bytes long",
                            name.size(),
                            detail::kLongestName),
                std::move(context));
  }
}

void refuseUnsupported(Topology topology, bool tls) {
  const auto refuse = [](const char* text) { throw Error(Errc::invalidArgument, text); };
  if (topology == Topology::sentinel) {
    refuse(
        "redis+sentinel:// is not supported by this version; write the addresses of the master and "
        "its replicas, as in redis://a:6379,b:6379, of which the one that takes writes is used");
  }
  if (topology == Topology::cluster) {
    refuse(
        "redis+cluster:// is not supported by this version; write the address of a server that is "
        "no node of a cluster, as in redis://host:6379");
  }
  if (tls) {
    refuse(
        "rediss:// (TLS) is not supported by this version; write redis:// and the address of a "
        "tunnel on this machine, or of a port without TLS");
  }
}

}  // namespace

Client Client::connect(std::string_view uri) {
  // Before what else may be wrong with it: nobody should complete an address that is refused then.
  if (uri.starts_with("redis+sentinel://")) {
    refuseUnsupported(Topology::sentinel, false);
  }
  if (uri.starts_with("redis+cluster://")) {
    refuseUnsupported(Topology::cluster, false);
  }
  return connect(Options::fromUri(uri));
}

Client Client::connect(const Options& options) {
  options.validate();
  refuseUnsupported(options.topology, options.tls);
  auto core = std::make_shared<detail::ClientCore>(options);
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
    // Threads and locks of the parent are frozen in this copy: nothing of it may be touched, so it
    // is not destroyed either.
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
  return core()->lock(std::make_shared<detail::LockScripts>(name));
}

RLock Client::getFairLock(std::string_view name) {
  checkName(name);
  return core()->lock(std::make_shared<detail::FairLockScripts>(
      name, core()->engine()->options().fairWaiterLease, true));
}

RLock Client::getNonReentrantLock(std::string_view name) {
  checkName(name);
  detail::LockTraits traits;
  traits.reentrant = false;
  return core()->lock(std::make_shared<detail::LockScripts>(name, traits));
}

RLock Client::getNonReentrantFairLock(std::string_view name) {
  checkName(name);
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
  return detail::makeOperation<Info>(
      [engine = core()->engine(), name = std::string(name)] {
        return detail::inspectName(engine, name);
      },
      [engine = core()->engine(),
       name = std::string(name)](detail::UniqueFunction<void(Result<Info>)> handler) {
        detail::inspectNameAsync(engine, name, std::move(handler));
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
  return PermitExpirableSemaphore(
      std::make_shared<detail::PermitSemaphore>(core()->engine(), name));
}

Semaphore Client::getSemaphore(std::string_view name) {
  checkName(name);
  return Semaphore(std::make_shared<detail::ScriptedSemaphore>(core()->engine(), name));
}

CountDownLatch Client::getCountDownLatch(std::string_view name) {
  checkName(name);
  return CountDownLatch(std::make_shared<detail::ScriptedLatch>(core()->engine(), name));
}

ReadWriteLock Client::getReadWriteLock(std::string_view name) {
  checkName(name);
  return {core()->lock(std::make_shared<detail::ReadLockScripts>(name)),
          core()->lock(std::make_shared<detail::WriteLockScripts>(name))};
}

FencedLock Client::getFencedLock(std::string_view name) {
  checkName(name);
  auto scripts = std::make_shared<const detail::FencedScripts>(
      name, core()->engine()->options().fencingTokenRetention);
  return FencedLock(std::make_shared<detail::ScriptedLock>(core()->engine(), scripts),
                    std::make_shared<detail::ScriptedTokens>(core()->engine(), scripts));
}

RLock Client::getSpinLock(std::string_view name, const BackOff& backOff) {
  checkName(name);
  return core()->lock(std::make_shared<detail::SpinScripts>(name, backOff));
}

RLock Client::getSimpleLock(std::string_view name) {
  checkName(name);
  return core()->lock(std::make_shared<detail::SimpleScripts>(name));
}

const std::string& Client::id() const& {
  return core()->engine()->clientId();
}

std::string Client::id() const&& {
  return core()->engine()->clientId();
}

Stats Client::stats() const {
  // In a child its mutexes may be locked for ever by threads that only the parent has.
  return core()->forked() ? Stats() : core()->engine()->stats();
}

void Client::close(std::chrono::milliseconds deadline) {
  if (!core()->forked()) {
    core()->close(deadline);
  }
}

}  // namespace rlock
