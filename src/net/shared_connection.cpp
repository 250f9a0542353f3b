// SPDX-License-Identifier: Apache-2.0

// SharedConnection: the steps that the users of a connection and its loop thread can take. Each
// takes the mutex of ConnectionCore, changes the state, leaves with what is to be done without it
// (bytes to write, input to read), and does that.

#include "net/shared_connection.hpp"

#include <string>
#include <sys/epoll.h>
#include <utility>
#include <vector>

namespace rlock::detail::net {

SharedConnection::SharedConnection(std::chrono::milliseconds replyTimeout,
                                   std::chrono::microseconds spin,
                                   UniqueFunction<void()> wakeLoop)
    : core_(replyTimeout, std::move(wakeLoop)), reader_(core_, spin) {}

void SharedConnection::start(Loop& loop, Established established, Poll::Callback onPollable) {
  auto watch =
      std::make_unique<SocketWatch>(loop, established.stream->descriptor(), std::move(onPollable));
  // Made before the mutex is taken: it may throw, and the connection must then stay down.
  ReplyReader reader;
  // Nothing can fail from here on.
  const MutexLock lock(core_.mutex);
  core_.begin(std::move(watch), std::move(established));
  reader_.begin(std::move(reader));
}

bool SharedConnection::submit(Request& request,
                              std::span<const std::string_view> argv,
                              Mode mode,
                              bool onLoop) {
  const auto known = request.takeSubmitTime();
  const auto now = known == Clock::time_point() ? Clock::now() : known;
  std::string_view bytes;
  {
    const MutexLock lock(core_.mutex);
    // Race: the connection may have failed since the caller saw it up. accepts() refuses a request
    // that may go out only on a connection that can be killed.
    if (core_.state != State::up || !core_.pending.accepts(request)) {
      return false;
    }
    // The last step that can fail. Were the command appended without its place in the order of
    // replies, or the other way round, each later reply would reach the wrong request.
    const std::size_t size = core_.output.append(argv);
    core_.pending.append(request, size, mode, now);
    // The bytes go out at the end of this pass of the loop, with those of all other requests of the
    // pass.
    if (onLoop) {
      return true;
    }
    if (mode == Mode::awaitedAtOnce) {
      if (core_.enlist(request)) {
        reader_.appointed(core_.pending.size());
      }
    } else if (mode == Mode::background) {
      if (core_.pending.background() == 1) {
        // The loop must watch for its reply not coming.
        core_.wakeLoop();
      }
      core_.arm();
    }
    bytes = core_.beginWriting();
  }
  core_.write(bytes);
  return true;
}

bool SharedConnection::submitGroup(std::span<const CommandTransport::Part> group) {
  std::string bytes;
  std::vector<std::size_t> sizes;
  for (const CommandTransport::Part& part : group) {
    const std::size_t before = bytes.size();
    appendCommand(bytes, part.argv);
    sizes.push_back(bytes.size() - before);
  }
  // Formatted before the mutex is taken: only the step that links bytes and requests needs it.
  const auto now = Clock::now();
  const MutexLock lock(core_.mutex);
  if (core_.state != State::up) {
    return false;
  }
  for (const CommandTransport::Part& part : group) {
    if (!core_.pending.accepts(part.request)) {
      return false;
    }
  }
  // As in submit(), and all or none.
  core_.output.append(bytes);
  for (std::size_t i = 0; i < group.size(); ++i) {
    core_.pending.append(group[i].request, sizes[i], Mode::background, now);
  }
  return true;
}

void SharedConnection::distrust() noexcept {
  const MutexLock lock(core_.mutex);
  core_.pending.distrust();
}

void SharedConnection::abandon(Clock::time_point since, Errc errc, const char* what) noexcept {
  ReleasableLock lock(core_.mutex);
  // Race: what the caller has against the connection may be about the one before, which is gone.
  if (since >= core_.upSince) {
    core_.fail(lock, {errc, what});
  }
}

void SharedConnection::close() noexcept {
  {
    ReleasableLock lock(core_.mutex);
    core_.closing = true;
    if (core_.state == State::up) {
      core_.fail(lock, {Errc::closed, "the client was closed"});
    }
  }
  const MutexLock lock(core_.mutex);
  // A failing connection becomes closed when it is dismantled.
  if (core_.state == State::down) {
    core_.state = State::closed;
  }
}

bool SharedConnection::serve() noexcept {
  const std::uint32_t events = core_.watch->events();
  if (events == 0) {
    return false;
  }
  std::string_view bytes;
  {
    const MutexLock lock(core_.mutex);
    // The event was for one time: it must be armed again, whatever this thread does now.
    core_.watch->disarmed();
    if (core_.state != State::up) {
      return false;
    }
    if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) {
      bytes = core_.resumeWriting();
    }
  }
  core_.write(bytes);
  {
    const MutexLock lock(core_.mutex);
    if (core_.state != State::up) {
      return false;
    }
    // The race with a thread that has become the reader since the event: it reads for all.
    if (core_.reading || (events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)) == 0) {
      // One event has switched off the others, which may still be waited for.
      core_.arm();
      return false;
    }
    core_.reading = true;
  }
  reader_.readOnLoop();
  return true;
}

SharedConnection::Clock::time_point SharedConnection::flush() noexcept {
  auto due = Clock::time_point::max();
  std::string_view bytes;
  {
    const MutexLock lock(core_.mutex);
    if (core_.state != State::up || core_.closing) {
      return due;
    }
    due = core_.pending.backgroundDue();
    // Before they are written: an event that comes meanwhile finds this thread here.
    core_.arm();
    bytes = core_.beginWriting();
  }
  core_.write(bytes);
  return due;
}

SharedConnection::Clock::time_point SharedConnection::maintain() noexcept {
  auto due = Clock::time_point::max();
  {
    ReleasableLock lock(core_.mutex);
    if (core_.state != State::up) {
      return due;
    }
    due = core_.closing ? due : core_.pending.backgroundDue();
    if (std::exchange(core_.armFailed, false)) {
      core_.arm();
      if (core_.armFailed) {
        core_.fail(lock, {Errc::connectionFailed, "cannot watch the socket"});
        return due;
      }
    }
    // A thread that has become the reader meanwhile reads for all.
    if (!std::exchange(core_.buffered, false) || std::exchange(core_.reading, true)) {
      return due;
    }
  }
  reader_.readOnLoop();
  return due;
}

void SharedConnection::checkIdle() noexcept {
  {
    const MutexLock lock(core_.mutex);
    // A reader would see it together with the reply that it waits for.
    if (core_.state != State::up || !core_.pending.empty() || std::exchange(core_.reading, true)) {
      return;
    }
  }
  reader_.readOnLoop();
}

void SharedConnection::takeCompleted(RequestQueue& queue) noexcept {
  const MutexLock lock(core_.mutex);
  queue.append(core_.completed);
}

std::optional<std::uint64_t> SharedConnection::answered() noexcept {
  const MutexLock lock(core_.mutex);
  return core_.state == State::up ? std::optional(core_.pending.answered()) : std::nullopt;
}

}  // namespace rlock::detail::net
