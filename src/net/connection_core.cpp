// SPDX-License-Identifier: Apache-2.0

// ConnectionCore: how a connection begins and ends, who reads it and who writes it. All of it runs
// under the mutex but for the calls to the kernel, which the writer makes alone. So most branches
// here are about the state having changed while the mutex was free.

#include "net/connection_core.hpp"

#include "base/futex.hpp"
#include <rlock/detail/net/request_word.hpp>

#include <fmt/format.h>

#include <cerrno>
#include <sched.h>
#include <sys/epoll.h>
#include <utility>

namespace rlock::detail::net {

namespace {

// Measured: with 4 callers and more it pays that one of them writes for several, with 2 it does
// not.
constexpr std::uint64_t kManyWriters = 4;

}  // namespace

ConnectionCore::ConnectionCore(std::chrono::milliseconds timeout, UniqueFunction<void()> wakesLoop)
    : replyTimeout(timeout),
      pending(timeout),
      stallText_(fmt::format("no reply within {} ms", timeout.count())),
      wakeLoop_(std::move(wakesLoop)) {}

void ConnectionCore::begin(std::unique_ptr<SocketWatch> newWatch,
                           Established established) noexcept {
  upSince = Clock::now();
  watch = std::move(newWatch);
  stream = std::move(established.stream);
  session_ = std::move(established.session);
  pending.begin(session_->canBeKilled(), upSince);
  output.reset();
  armFailed = false;
  buffered = false;
  state = State::up;
  up_.store(true, std::memory_order_release);
}

std::optional<ConnectionCore::Remains> ConnectionCore::dismantle() noexcept {
  const MutexLock lock(mutex);
  // The reader and the writer use the stream without the mutex. Each of them wakes the loop when it
  // leaves a failing connection, and the loop comes here again.
  if (state != State::failing || reading || output.hasWriter()) {
    return std::nullopt;
  }
  watch.reset();
  state = closing ? State::closed : State::down;
  return Remains{failure_, pending.useful(), upSince, session_, std::move(stream)};
}

void ConnectionCore::fail(const Failure& why) noexcept {
  ReleasableLock lock(mutex);
  fail(lock, why);
}

// Not analysed: it releases what its callers have taken, unless there is nothing to do.
void ConnectionCore::fail(ReleasableLock& lock,
                          const Failure& why) noexcept RLOCK_NO_THREAD_SAFETY_ANALYSIS {
  if (state != State::up) {
    return;
  }
  state = State::failing;
  up_.store(false);
  failure_ = why;
  const bool unanswered = !pending.empty();
  PendingRequests::Ended ended;
  // Requests whose last byte the kernel has not taken come back as unsent, all others as lost.
  pending.fail(session_, ended);
  completed.append(ended.background);
  output.drop();
  // A thread that sleeps in a read must come back; the descriptor is closed once nobody uses it.
  // Bytes written just before an orderly end are still to arrive; bytes that nobody counts on any
  // more are not.
  if (unanswered && !closing) {
    stream->abort();
  } else {
    stream->shutdown();
  }
  // Their threads may submit at once, and the loop may dismantle the connection: with the mutex
  // free.
  lock.unlock();
  tell(ended.awaited);
  wakeLoop_();
}

ConnectionCore::Failure ConnectionCore::socketFailure(const char* what, int error) const {
  const StreamFailure* const why = stream->failure();
  return why != nullptr ? Failure{Errc::connectionFailed, what, why->text.c_str()}
                        : Failure{Errc::connectionFailed, what, "", error};
}

ConnectionCore::Clock::time_point ConnectionCore::checkStall(Clock::time_point now,
                                                             Watcher who) noexcept {
  ReleasableLock lock(mutex);
  const bool concerned = who == Watcher::loop ? pending.background() > 0 : !pending.empty();
  // Race: the reply may have come, or the connection have failed, since the timer expired.
  if (state != State::up || !concerned) {
    return Clock::time_point::max();
  }
  const auto again = pending.judgeStall(now);
  if (again == Clock::time_point::max()) {
    fail(lock, {Errc::timedOut, stallText_.c_str()});
  }
  return again;
}

void ConnectionCore::tell(RequestQueue& ended) noexcept {
  // Taken out of the queue first: once finished, its thread may submit it again.
  while (const PendingRequests::RequestPtr request = ended.pop()) {
    if (RequestWord::finish(*request)) {
      futexWakeOne(&RequestWord::word(*request));
    }
  }
}

bool ConnectionCore::enlist(Request& request) noexcept {
  // The request was appended in the same step under the mutex, so the reader cannot have passed it.
  if (std::exchange(reading, true)) {
    pending.enlist(request);
    return false;
  }
  pending.appoint(request);
  return true;
}

PendingRequests::Leader ConnectionCore::passRole() noexcept {
  PendingRequests::Leader next = pending.appoint();
  if (!next.request) {
    // Nobody is left who waits in a read. Replies that nobody awaits come to the loop, by an event.
    reading = false;
    arm();
  }
  return next;
}

void ConnectionCore::arm() noexcept {
  // Room that is there already would wake the loop again and again.
  const bool outputAwaitsInput = output.blocked() && stream->writeAwaitsInput();
  const bool room = output.blocked() && !outputAwaitsInput;
  const bool input = (pending.background() > 0 || outputAwaitsInput) && !reading;
  const std::uint32_t events = (input ? static_cast<std::uint32_t>(EPOLLIN) : 0U) |
                               (room ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
  // Of what the stream has taken from the socket, the socket tells nothing.
  if (input && stream->hasBufferedInput() && !std::exchange(buffered, true)) {
    wakeLoop_();
  }
  // The kernel may have no memory for the event. The loop tries again, and gives the connection up
  // if that fails too.
  if (!watch->arm(events) && !std::exchange(armFailed, true)) {
    wakeLoop_();
  }
}

std::string_view ConnectionCore::beginWriting() noexcept {
  return output.enter() ? nextBytes() : std::string_view();
}

std::string_view ConnectionCore::resumeWriting() noexcept {
  return output.unblock() ? nextBytes() : std::string_view();
}

/// The bytes that the writer writes next; it leaves when there are none.
std::string_view ConnectionCore::nextBytes() noexcept {
  if (stream->packsWrites() && pending.size() >= kManyWriters) {
    // Others are at work on this connection: those who are about to send something come along.
    // When there are no others, this returns at once.
    mutex.unlock();
    ::sched_yield();
    mutex.lock();
  }
  const std::string_view bytes = state == State::up ? output.next() : std::string_view();
  if (bytes.empty()) {
    output.leave();
    if (state == State::failing) {
      // The loop takes the socket away now that it has no writer.
      wakeLoop_();
    }
  } else {
    pending.offer(bytes.size());
  }
  return bytes;
}

/// A writer for whom nobody has left anything leaves without the mutex.
void ConnectionCore::write(std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t count = stream->write(bytes.data(), bytes.size());
    const int error = errno;
    if (count > 0) {
      output.wrote(static_cast<std::size_t>(count));
    }
    if (count == static_cast<ssize_t>(bytes.size()) && output.leaveIfIdle()) {
      // Race: the connection may have failed during the call, and its fail() have seen a writer.
      // The writer leaves and then reads up_, while fail() clears up_ and then looks for a writer:
      // whichever comes second sees the other and wakes the loop, which takes the socket away.
      if (!up_.load()) {
        wakeLoop_();
      }
      return;
    }
    bytes = goOnWriting(bytes, count, error);
  }
}

/// The kernel has taken `count` of the bytes, or none because of `error`. Returns what to write
/// next.
std::string_view ConnectionCore::goOnWriting(std::string_view bytes,
                                             ssize_t count,
                                             int error) noexcept {
  ReleasableLock lock(mutex);
  // Race: the connection may have failed during the call to the kernel. nextBytes() then gives the
  // role of the writer up.
  if (state != State::up || count > 0) {
    if (state == State::up) {
      pending.refused(bytes.size() - static_cast<std::size_t>(count));
    }
    return nextBytes();
  }
  pending.refused(bytes.size());
  if (count < 0 && error == EAGAIN) {
    // No caller may wait for room: the loop goes on, or the reader if it finds room first.
    output.block();
    arm();
    return {};
  }
  // The writer leaves first: fail() wakes the loop, which takes the stream away once there is no
  // writer.
  output.leave();
  if (count < 0 && closedByPeer(error)) {
    // The server's last words are still to be read, such as the alert that says why it does not
    // accept a certificate. The reader fails the connection when it comes upon the end; without
    // one the loop reads, which the watch tells of the end.
    arm();
    return {};
  }
  fail(lock, socketFailure("writing failed", count == 0 ? EPIPE : error));
  return {};
}

}  // namespace rlock::detail::net
