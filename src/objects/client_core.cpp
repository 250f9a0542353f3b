// SPDX-License-Identifier: Apache-2.0

// How a client is opened and closed. Both begin on the caller's thread and are carried out on the
// loop thread; the caller waits for it unless it is the loop thread itself. closing_ ensures that
// the end happens once, and closing returns at most kMargin after its deadline, even when the loop
// is blocked.

#include "objects/client_core.hpp"

#include <rlock/detail/base/fork.hpp>
#include <rlock/detail/base/one_shot.hpp>
#include <rlock/detail/engine/scripted_lock.hpp>
#include <rlock/duration.hpp>

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <new>
#include <random>
#include <sys/random.h>
#include <utility>

namespace rlock::detail {

namespace {

using Clock = std::chrono::steady_clock;

/// How long a caller waits for the loop beyond its own limit.
constexpr std::chrono::milliseconds kMargin{40};

}  // namespace

/// Makes a UUID from random bits of the kernel: time and process id are not enough to tell apart
/// containers that start together.
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

ClientCore::ClientCore(ClientWorld world,
                       std::string id,
                       const Options& options,
                       std::shared_ptr<const Logger> log)
    : log_(std::move(log)),
      forkGeneration_(forkGeneration()),
      ownsLoop_(world.ownsLoop),
      closeTimeout_(options.closeTimeout),
      env_(std::move(world.env)),
      engine_(std::make_shared<LockEngine>(std::move(id), options, log_, env_, world.transports)),
      disconnect_(env_->makeTask([this] { engine_->disconnect(); })) {}

void ClientCore::open(const Options& options) {
  if (!ownsLoop_ || options.connect == ConnectMode::lazy) {
    // The caller may run its own loop only after this call, so waiting here would never end.
    env_->post([engine = engine_, log = log_] {
      engine->open([log](const Result<void>& result) {
        if (!result.has_value()) {
          log->write(LogLevel::warning,
                     std::string("no connection, trying again: ") + result.error().what());
        }
      });
    });
    return;
  }
  auto outcome = std::make_shared<OneShot<Result<void>>>(env_);
  env_->post([engine = engine_, outcome] {
    engine->open([outcome](Result<void> result) { outcome->put(std::move(result)); });
  });
  // The connection layer keeps the limit itself; the margin is for its own scheduling.
  const bool decided = outcome->waitUntil(env_->now() + options.connectTimeout + kMargin);
  if (!decided) {
    close(std::chrono::milliseconds(0));
    throw Error(Errc::connectionFailed, "no connection within the connect timeout");
  }
  if (const Result<void> result = outcome->take(); !result.has_value()) {
    close(std::chrono::milliseconds(0));
    throw Error(result.error());
  }
}

void ClientCore::close(std::chrono::milliseconds limit) {
  if (closing_.exchange(true)) {
    return;
  }
  engine_->markClosed();
  // Race: the limit may be over before the loop has ended, and then the caller destroys the client.
  env_->keepToTheEnd(shared_from_this());
  env_->closing();
  try {
    closeInOrder(limit);
  } catch (const std::bad_alloc&) {
    // Without memory no hold can be released; the holds expire by themselves.
    engine_->endWaits();
    disconnect_->post(shared_from_this());
    env_->stop(env_->now());
  }
}

void ClientCore::closeInOrder(std::chrono::milliseconds limit) {
  const auto deadline = Duration(limit).deadlineFrom(env_->now());
  auto done = std::make_shared<OneShot<bool>>(env_);
  const auto finish = [self = shared_from_this(), done] {
    self->engine_->disconnect();
    // Calls that were told of the end may have something left to do on the loop.
    self->env_->post([self, done] { self->env_->post([done] { done->put(true); }); });
  };
  const bool onLoop = env_->onLoopThread();
  env_->post([self = shared_from_this(), deadline, finish, onLoop] {
    try {
      self->engine_->shutDown(deadline, [self, finish, onLoop] {
        finish();
        if (onLoop) {
          self->env_->post(
              [self] { self->env_->post([self] { self->env_->stop(self->env_->now()); }); });
        }
      });
    } catch (const std::bad_alloc&) {
      // As in close(). A caller on another thread ends the loop itself.
      self->engine_->disconnect();
      if (onLoop) {
        self->env_->stop(self->env_->now());
      }
    }
  });
  if (onLoop) {
    return;
  }
  const auto until = Duration(kMargin).deadlineFrom(deadline);
  if (!done->waitUntil(until)) {
    // The loop may be in a callback that waits for a waiting thread, or may not run any more.
    engine_->endWaits();
    // Race: the loop is late, and may be stopped before its timer ends the calls under way. Then
    // disconnect_ ends them as one of the loop's last functions.
    disconnect_->post(shared_from_this());
  }
  env_->stop(until);
}

void ClientCore::closeOnDestruction() noexcept {
  try {
    close(closeTimeout_);
  } catch (...) {
    log_->write(LogLevel::error, "closing the client failed");
  }
}

bool ClientCore::forked() const noexcept {
  return forkGeneration() != forkGeneration_;
}

RLock ClientCore::lock(std::shared_ptr<const LockScripts> scripts) const {
  return RLock(std::make_shared<ScriptedLock>(engine_, std::move(scripts)));
}

}  // namespace rlock::detail
