// SPDX-License-Identifier: Apache-2.0
#include "net/connection_reader.hpp"

#include "base/futex.hpp"
#include "net/link_settings.hpp"
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/net/request_word.hpp>

#include <algorithm>
#include <cerrno>
#include <sched.h>
#include <string_view>

namespace rlock::detail::net {

namespace {

/// The handshake has authenticated the connection, and the server knows that no more: it was reset,
/// or the server is a proxy that was started again.
bool asksForAuthentication(const Reply& reply) noexcept {
  return reply.isError() && firstWord(reply.text) == "NOAUTH";
}

}  // namespace

ConnectionReader::Awaited ConnectionReader::await(Request& request,
                                                  Clock::time_point deadline) noexcept {
  if (!PendingRequests::enlisted(request)) {
    if (RequestWord::done(request)) {
      // Somebody else sent it and somebody else read its reply, perhaps long before this thread was
      // awake.
      request.setAnsweredAt(Clock::now());
      return Awaited::complete;
    }
    const MutexLock lock(core_.mutex);
    // The race with the reader, or with a failure: the request may have ended under the mutex while
    // its done bit is yet to be set. It has no connection to read any more, and its thread waits
    // for that bit.
    if (request.delivery() == Request::Delivery::pending && core_.enlist(request)) {
      appointed(core_.pending.size());
    }
  }
  return follow(request, deadline);
}

ConnectionReader::Awaited ConnectionReader::follow(Request& request,
                                                   Clock::time_point deadline) noexcept {
  auto stallAt = request.submittedAt() + core_.replyTimeout;
  auto now = request.submittedAt();
  for (;;) {
    std::uint32_t word = 0;
    switch (RequestWord::next(request, word)) {
      case RequestWord::Next::lead:
        return lead(request, deadline, now);
      case RequestWord::Next::done:
        // The reader's time may be long past: this thread was woken since.
        request.setAnsweredAt(now == request.submittedAt() ? Clock::now() : now);
        return Awaited::complete;
      case RequestWord::Next::interrupt:
        if (leave(request)) {
          return Awaited::interrupted;
        }
        // The race with the reader: it has just ended the request or made this thread the reader,
        // and the next look at the word says which.
        ::sched_yield();
        continue;
      case RequestWord::Next::sleep:
        break;
    }
    futexWait(RequestWord::word(request), word, std::min(deadline, stallAt));
    now = Clock::now();
    if (now >= deadline) {
      if (leave(request)) {
        return Awaited::timedOut;
      }
      // The same race as above.
      ::sched_yield();
    } else if (now >= stallAt && !RequestWord::done(request)) {
      stallAt = core_.checkStall(now, ConnectionCore::Watcher::thread);
    }
  }
}

/// Returns false when the request is over or this thread was made the reader: both must be dealt
/// with before it leaves.
bool ConnectionReader::leave(Request& request) noexcept {
  const MutexLock lock(core_.mutex);
  if (!core_.pending.leave(request)) {
    return false;
  }
  core_.arm();
  core_.wakeLoop();
  return true;
}

/// @param now  a moment ago
ConnectionReader::Awaited ConnectionReader::lead(Request& request,
                                                 Clock::time_point deadline,
                                                 Clock::time_point now) noexcept {
  auto stallAt = request.submittedAt() + core_.replyTimeout;
  Awaited result = Awaited::complete;
  while (!RequestWord::done(request)) {
    if (receive(&request, std::min(deadline, stallAt) - now) == Reading::over) {
      return result;
    }
    if (RequestWord::done(request)) {
      break;
    }
    const bool interrupted = RequestWord::interrupted(request);
    now = Clock::now();
    if (interrupted || now >= deadline) {
      const MutexLock lock(core_.mutex);
      if (core_.pending.toBackground(request)) {
        result = interrupted ? Awaited::interrupted : Awaited::timedOut;
        // This thread is still the reader, so the arming for input is left to handOver().
        core_.arm();
        core_.wakeLoop();
        break;
      }
      // The race with a writer whose failure has just ended the request: its done bit follows.
      continue;
    }
    if (now >= stallAt) {
      stallAt = core_.checkStall(now, ConnectionCore::Watcher::thread);
    }
  }
  handOver();
  return result;
}

/// Takes what has come, and waits for it if `own` is given, the request of this thread.
ConnectionReader::Reading ConnectionReader::receive(const Request* own,
                                                    Clock::duration left) noexcept {
  bool room = false;
  const ssize_t count = own == nullptr ? input_.take(*core_.stream)
                                       : input_.await(*core_.stream, left, core_.output, room);
  const int error = errno;
  if (room) {
    std::string_view bytes;
    {
      const MutexLock lock(core_.mutex);
      if (core_.state == ConnectionCore::State::up) {
        bytes = core_.resumeWriting();
      }
    }
    core_.write(bytes);
  }
  if (count == 0) {
    core_.fail({Errc::connectionFailed, "the server closed the connection"});
  } else if (count < 0 && error != EAGAIN) {
    core_.fail(core_.socketFailure("reading failed", error));
  }
  if (count <= 0) {
    return Reading::nothing;
  }
  // The reader's own reply may pass the role on, and with it the input.
  const bool filled = input_.filled(count);
  Reading reading = Reading::more;
  while (reading == Reading::more) {
    reading = hand(input_.next(), own);
  }
  // When less than a full buffer came, and the stream has nothing, the next read would only say so.
  return reading == Reading::nothing && (filled || core_.stream->hasBufferedInput()) ? Reading::more
                                                                                     : reading;
}

/// Gives the replies to their requests.
ConnectionReader::Reading ConnectionReader::hand(const ReplyInput::Batch& batch,
                                                 const Request* own) noexcept {
  if (batch.replies.empty() && batch.then == ReplyReader::Next::needMore) {
    return Reading::nothing;
  }
  const auto now = Clock::now();
  bool expected = true;
  bool forgotten = false;
  bool over = false;
  PendingRequests::Ended ended;
  PendingRequests::Leader next;
  {
    ReleasableLock lock(core_.mutex);
    if (core_.state != ConnectionCore::State::up) {
      return Reading::nothing;
    }
    input_.notePending(core_.pending.size());
    const bool waits = own != nullptr && own->delivery() == Request::Delivery::pending;
    for (Reply& reply : batch.replies) {
      forgotten = forgotten || asksForAuthentication(reply);
      expected = core_.pending.take(std::move(reply), now, ended);
      if (!expected) {
        break;
      }
    }
    // The loop itself looks at them when it has handed over the role of the reader.
    if (own != nullptr && core_.completed.empty() && !ended.background.empty()) {
      core_.wakeLoop();
    }
    core_.completed.append(ended.background);
    const bool mine = own != nullptr && own->delivery() == Request::Delivery::replied;
    if (mine && waits) {
      input_.noteRoundTrip(now - own->submittedAt());
    }
    over = mine && expected && !forgotten && batch.then == ReplyReader::Next::needMore;
    if (over) {
      next = core_.passRole();
    }
    if (forgotten) {
      // This connection ends before its requests are told, so that none of them goes out again on
      // it. The next one begins with the credentials, and with the database.
      core_.pending.discredit();
      core_.fail(lock, {Errc::connectionFailed, "the server asks for the authentication again"});
    }
  }
  ConnectionCore::tell(ended.awaited);
  if (over) {
    wake(next);
    return Reading::over;
  }
  if (!expected || batch.then == ReplyReader::Next::protocolError) {
    core_.fail(
        {Errc::protocolError, "the server sent what is no reply to a request", input_.errorText()});
    return Reading::nothing;
  }
  return batch.then == ReplyReader::Next::reply ? Reading::more : Reading::nothing;
}

void ConnectionReader::handOver() noexcept {
  PendingRequests::Leader next;
  {
    const MutexLock lock(core_.mutex);
    if (core_.state != ConnectionCore::State::up) {
      // A failure, of this reader or of a writer meanwhile, leaves nobody to read for; the loop
      // takes the socket away now that it has no reader.
      core_.reading = false;
      core_.wakeLoop();
      return;
    }
    next = core_.passRole();
  }
  wake(next);
}

/// The loop is the reader.
void ConnectionReader::readOnLoop() noexcept {
  for (int i = 0; i < kReadsPerPass; ++i) {
    if (receive(nullptr, Clock::duration::zero()) != Reading::more) {
      break;
    }
  }
  handOver();
}

void ConnectionReader::wake(const PendingRequests::Leader& leader) noexcept {
  if (leader.asleep) {
    futexWakeOne(&RequestWord::word(*leader.request));
  }
}

}  // namespace rlock::detail::net
