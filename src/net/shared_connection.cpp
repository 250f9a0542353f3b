// SPDX-License-Identifier: Apache-2.0
#include "net/shared_connection.hpp"

#include "base/futex.hpp"
#include "net/link_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <sched.h>
#include <sys/epoll.h>
#include <utility>

namespace rlock::detail::net {

namespace {

SharedConnection::Failure socketFailure(const Stream& stream, const char* what, int error) {
  const StreamFailure* const why = stream.failure();
  return why != nullptr ? SharedConnection::Failure{Errc::connectionFailed, what, why->text.c_str()}
                        : SharedConnection::Failure{Errc::connectionFailed, what, "", error};
}

/// Wakes a thread that was made the reader.
void wake(const PendingRequests::Leader& leader) noexcept {
  if (leader.asleep) {
    futexWakeOne(&RequestWord::word(*leader.request));
  }
}

/// Sets the done bit of a request that has ended, and wakes its thread.
void finish(Request& request) noexcept {
  if (RequestWord::finish(request)) {
    futexWakeOne(&RequestWord::word(request));
  }
}

}  // namespace

void Request::interrupt() noexcept {
  const std::uint32_t before = state_.fetch_or(kInterrupted, std::memory_order_acq_rel);
  if ((before & kSleeping) != 0) {
    futexWakeOne(&state_.word());
  }
}

SharedConnection::SharedConnection(std::chrono::milliseconds replyTimeout,
                                   std::chrono::microseconds spin,
                                   UniqueFunction<void()> wakeLoop)
    : replyTimeout_(replyTimeout),
      stallText_(fmt::format("no reply within {} ms", replyTimeout.count())),
      wakeLoop_(std::move(wakeLoop)),
      pending_(replyTimeout),
      input_(spin) {}

void SharedConnection::start(Loop& loop, Established established, Poll::Callback onPollable) {
  auto watch =
      std::make_unique<SocketWatch>(loop, established.stream->descriptor(), std::move(onPollable));
  ReplyReader reader;
  // Nothing can fail from here on.
  const MutexLock lock(mutex_);
  upSince_ = Clock::now();
  watch_ = std::move(watch);
  stream_ = std::move(established.stream);
  session_ = std::move(established.session);
  pending_.begin(session_->canBeKilled(), upSince_);
  input_.begin(std::move(reader));
  output_.reset();
  armFailed_ = false;
  buffered_ = false;
  state_ = State::up;
  up_.store(true, std::memory_order_release);
}

void SharedConnection::close() noexcept {
  {
    ReleasableLock lock(mutex_);
    closing_ = true;
    if (state_ == State::up) {
      fail(lock, {Errc::closed, "the client was closed"});
    }
  }
  const MutexLock lock(mutex_);
  if (state_ == State::down) {
    state_ = State::closed;
  }
}

bool SharedConnection::submit(Request& request,
                              std::span<const std::string_view> argv,
                              Mode mode,
                              bool onLoop) {
  const auto known = request.takeSubmitTime();
  const auto now = known == Clock::time_point() ? Clock::now() : known;
  std::string_view bytes;
  {
    const MutexLock lock(mutex_);
    if (state_ != State::up || !pending_.accepts(request)) {
      return false;
    }
    // The last step that can fail. Were the command appended without its place in the order of
    // replies, or the other way round, each later reply would reach the wrong request.
    const std::size_t size = output_.append(argv);
    pending_.append(request, size, mode, now);
    if (onLoop) {
      return true;
    }
    if (mode == Mode::awaitedAtOnce) {
      enlist(request);
    } else if (mode == Mode::background) {
      if (pending_.background() == 1) {
        // The loop must watch for its reply not coming.
        wakeLoop_();
      }
      arm();
    }
    bytes = beginWriting();
  }
  write(bytes);
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
  const auto now = Clock::now();
  const MutexLock lock(mutex_);
  if (state_ != State::up) {
    return false;
  }
  for (const CommandTransport::Part& part : group) {
    if (!pending_.accepts(part.request)) {
      return false;
    }
  }
  // As in submit(), and all or none.
  output_.append(bytes);
  for (std::size_t i = 0; i < group.size(); ++i) {
    pending_.append(group[i].request, sizes[i], Mode::background, now);
  }
  return true;
}

void SharedConnection::distrust() noexcept {
  const MutexLock lock(mutex_);
  pending_.distrust();
}

void SharedConnection::abandon(Clock::time_point since, Errc errc, const char* what) noexcept {
  ReleasableLock lock(mutex_);
  if (since >= upSince_) {
    fail(lock, {errc, what});
  }
}

/// The thread that awaits the request becomes the reader if there is none, and stands in line
/// otherwise.
void SharedConnection::enlist(Request& request) noexcept {
  if (std::exchange(reading_, true)) {
    pending_.enlist(request);
  } else {
    pending_.appoint(request);
    input_.setPending(pending_.size());
  }
}

SharedConnection::Awaited SharedConnection::await(Request& request,
                                                  Clock::time_point deadline) noexcept {
  if (!PendingRequests::enlisted(request)) {
    if (RequestWord::done(request)) {
      // Somebody else sent it and somebody else read its reply, perhaps long before this thread was
      // awake.
      request.setAnsweredAt(Clock::now());
      return Awaited::complete;
    }
    const MutexLock lock(mutex_);
    // The race with the reader, or with a failure: the request may have ended under the mutex while
    // its done bit is yet to be set. It has no connection to read any more, and its thread waits
    // for that bit.
    if (request.delivery() == Request::Delivery::pending) {
      enlist(request);
    }
  }
  return follow(request, deadline);
}

SharedConnection::Awaited SharedConnection::follow(Request& request,
                                                   Clock::time_point deadline) noexcept {
  auto stallAt = request.submittedAt() + replyTimeout_;
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
      stallAt = checkStall(now, Watcher::thread);
    }
  }
}

/// Returns false when the request is over or this thread was made the reader: both must be dealt
/// with before it leaves.
bool SharedConnection::leave(Request& request) noexcept {
  const MutexLock lock(mutex_);
  if (!pending_.leave(request)) {
    return false;
  }
  arm();
  wakeLoop_();
  return true;
}

/// @param now  a moment ago
SharedConnection::Awaited SharedConnection::lead(Request& request,
                                                 Clock::time_point deadline,
                                                 Clock::time_point now) noexcept {
  auto stallAt = request.submittedAt() + replyTimeout_;
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
      const MutexLock lock(mutex_);
      if (pending_.toBackground(request)) {
        result = interrupted ? Awaited::interrupted : Awaited::timedOut;
        // This thread is still the reader, so the arming for input is left to handOver().
        arm();
        wakeLoop_();
        break;
      }
      // The race with a writer whose failure has just ended the request: its done bit follows.
      continue;
    }
    if (now >= stallAt) {
      stallAt = checkStall(now, Watcher::thread);
    }
  }
  handOver();
  return result;
}

/// Takes what has come, and waits for it if `own` is given, the request of this thread.
SharedConnection::Reading SharedConnection::receive(const Request* own,
                                                    Clock::duration left) noexcept {
  bool room = false;
  const ssize_t count =
      own == nullptr ? input_.take(*stream_) : input_.await(*stream_, left, output_, room);
  const int error = errno;
  if (room) {
    std::string_view bytes;
    {
      const MutexLock lock(mutex_);
      if (state_ == State::up && output_.unblock()) {
        bytes = nextBytes();
      }
    }
    write(bytes);
  }
  if (count == 0) {
    fail({Errc::connectionFailed, "the server closed the connection"});
  } else if (count < 0 && error != EAGAIN) {
    fail(socketFailure(*stream_, "reading failed", error));
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
  return reading == Reading::nothing && (filled || stream_->hasBufferedInput()) ? Reading::more
                                                                                : reading;
}

/// Gives the replies to their requests.
SharedConnection::Reading SharedConnection::hand(const ReplyInput::Batch& batch,
                                                 const Request* own) noexcept {
  if (batch.replies.empty() && batch.then == ReplyReader::Next::needMore) {
    return Reading::nothing;
  }
  const auto now = Clock::now();
  bool expected = true;
  bool over = false;
  PendingRequests::Ended ended;
  PendingRequests::Leader next;
  {
    const MutexLock lock(mutex_);
    if (state_ != State::up) {
      return Reading::nothing;
    }
    const bool waits = own != nullptr && own->delivery() == Request::Delivery::pending;
    for (Reply& reply : batch.replies) {
      expected = pending_.take(std::move(reply), now, ended);
      if (!expected) {
        break;
      }
    }
    // The loop itself looks at them when it has handed over the role of the reader.
    if (own != nullptr && completed_.empty() && !ended.background.empty()) {
      wakeLoop_();
    }
    completed_.append(ended.background);
    const bool mine = own != nullptr && own->delivery() == Request::Delivery::replied;
    if (mine && waits) {
      input_.noteRoundTrip(now - own->submittedAt());
    }
    input_.setPending(pending_.size());
    over = mine && expected && batch.then == ReplyReader::Next::needMore;
    if (over) {
      next = passRole();
    }
  }
  // Taken out of the queue first: once finished, its thread may submit it again.
  while (const RequestPtr request = ended.awaited.pop()) {
    finish(*request);
  }
  if (over) {
    wake(next);
    return Reading::over;
  }
  if (!expected || batch.then == ReplyReader::Next::protocolError) {
    fail(
        {Errc::protocolError, "the server sent what is no reply to a request", input_.errorText()});
    return Reading::nothing;
  }
  return batch.then == ReplyReader::Next::reply ? Reading::more : Reading::nothing;
}

/// The thread that has waited longest is the reader from here on, if there is one. It may read at
/// once, so that the input is no longer this thread's.
PendingRequests::Leader SharedConnection::passRole() noexcept {
  PendingRequests::Leader next = pending_.appoint();
  if (!next.request) {
    reading_ = false;
    arm();
  }
  return next;
}

void SharedConnection::handOver() noexcept {
  PendingRequests::Leader next;
  {
    const MutexLock lock(mutex_);
    if (state_ != State::up) {
      // A failure, of this reader or of a writer meanwhile, leaves nobody to read for; the loop
      // takes the socket away now that it has no reader.
      reading_ = false;
      wakeLoop_();
      return;
    }
    next = passRole();
  }
  wake(next);
}

/// Makes this thread the writer if there is none. Returns the bytes that it is to write().
std::string_view SharedConnection::beginWriting() noexcept {
  return output_.enter() ? nextBytes() : std::string_view();
}

/// What the writer writes next, as far as it is known; it leaves when there is nothing.
std::string_view SharedConnection::nextBytes() noexcept {
  if (stream_->packsWrites() && pending_.size() > 1) {
    // Others are at work on this connection: those who are about to send something come along.
    // Where nobody is, this returns at once.
    mutex_.unlock();
    ::sched_yield();
    mutex_.lock();
  }
  const std::string_view bytes = state_ == State::up ? output_.next() : std::string_view();
  if (bytes.empty()) {
    output_.leave();
    if (state_ == State::failing) {
      // The loop takes the socket away now that it has no writer.
      wakeLoop_();
    }
  } else {
    pending_.offer(bytes.size());
  }
  return bytes;
}

/// Writes until there is no more or the socket is full. Commands that others append during a call
/// to the kernel are written by the next one. A writer for whom nobody has left anything leaves
/// without the mutex.
void SharedConnection::write(std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t count = stream_->write(bytes.data(), bytes.size());
    const int error = errno;
    if (count > 0) {
      output_.wrote(static_cast<std::size_t>(count));
    }
    if (count == static_cast<ssize_t>(bytes.size()) && output_.leaveIfIdle()) {
      // The race with a failure during the call: the loop takes the socket away now that it has no
      // writer. Whoever comes second of this thread and fail() sees the other.
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
std::string_view SharedConnection::goOnWriting(std::string_view bytes,
                                               ssize_t count,
                                               int error) noexcept {
  ReleasableLock lock(mutex_);
  if (state_ != State::up || count > 0) {
    if (state_ == State::up) {
      pending_.refused(bytes.size() - static_cast<std::size_t>(count));
    }
    return nextBytes();
  }
  pending_.refused(bytes.size());
  if (count < 0 && error == EAGAIN) {
    // No caller may wait for room: the loop goes on, or the reader if it finds room first.
    output_.block();
    arm();
    return {};
  }
  output_.leave();
  fail(lock, socketFailure(*stream_, "writing failed", count == 0 ? EPIPE : error));
  return {};
}

/// Has the loop woken for what nobody else waits for.
void SharedConnection::arm() noexcept {
  const bool input = pending_.background() > 0 && !reading_;
  const std::uint32_t events = (input ? static_cast<std::uint32_t>(EPOLLIN) : 0U) |
                               (output_.blocked() ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
  // Of what the stream has taken from the socket, the socket tells nothing.
  if (input && stream_->hasBufferedInput() && !std::exchange(buffered_, true)) {
    wakeLoop_();
  }
  if (!watch_->arm(events) && !std::exchange(armFailed_, true)) {
    wakeLoop_();
  }
}

void SharedConnection::fail(const Failure& why) noexcept {
  ReleasableLock lock(mutex_);
  fail(lock, why);
}

// Not analysed: it releases what its callers have taken, unless there is nothing to do.
void SharedConnection::fail(ReleasableLock& lock,
                            const Failure& why) noexcept RLOCK_NO_THREAD_SAFETY_ANALYSIS {
  if (state_ != State::up) {
    return;
  }
  state_ = State::failing;
  up_.store(false);
  failure_ = why;
  const bool unanswered = !pending_.empty();
  PendingRequests::Ended ended;
  pending_.fail(session_, ended);
  completed_.append(ended.background);
  output_.drop();
  // A thread that sleeps in a read must come back; the descriptor is closed once nobody uses it.
  // Bytes written just before an orderly end are still to arrive; bytes that nobody counts on any
  // more are not.
  if (unanswered && !closing_) {
    stream_->abort();
  } else {
    stream_->shutdown();
  }
  lock.unlock();
  while (const RequestPtr request = ended.awaited.pop()) {
    finish(*request);
  }
  wakeLoop_();
}

bool SharedConnection::serve() noexcept {
  const std::uint32_t events = watch_->events();
  if (events == 0) {
    return false;
  }
  std::string_view bytes;
  {
    const MutexLock lock(mutex_);
    watch_->disarmed();
    if (state_ != State::up) {
      return false;
    }
    if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0 && output_.unblock()) {
      bytes = nextBytes();
    }
  }
  write(bytes);
  {
    const MutexLock lock(mutex_);
    if (state_ != State::up) {
      return false;
    }
    // The race with a thread that has become the reader since the event: it reads for all.
    if (reading_ || (events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)) == 0) {
      // One event has switched off the others, which may still be waited for.
      arm();
      return false;
    }
    reading_ = true;
  }
  readOnLoop();
  return true;
}

/// The loop is the reader.
void SharedConnection::readOnLoop() noexcept {
  for (int i = 0; i < kReadsPerPass; ++i) {
    if (receive(nullptr, Clock::duration::zero()) != Reading::more) {
      break;
    }
  }
  handOver();
}

SharedConnection::Clock::time_point SharedConnection::flush() noexcept {
  auto due = Clock::time_point::max();
  std::string_view bytes;
  {
    const MutexLock lock(mutex_);
    if (state_ != State::up || closing_) {
      return due;
    }
    due = pending_.backgroundDue();
    // Before they are written: an event that comes meanwhile finds this thread here.
    arm();
    bytes = beginWriting();
  }
  write(bytes);
  return due;
}

SharedConnection::Clock::time_point SharedConnection::maintain() noexcept {
  auto due = Clock::time_point::max();
  {
    ReleasableLock lock(mutex_);
    if (state_ != State::up) {
      return due;
    }
    due = closing_ ? due : pending_.backgroundDue();
    if (std::exchange(armFailed_, false)) {
      arm();
      if (armFailed_) {
        fail(lock, {Errc::connectionFailed, "cannot watch the socket"});
        return due;
      }
    }
    // A thread that has become the reader meanwhile reads for all.
    if (!std::exchange(buffered_, false) || std::exchange(reading_, true)) {
      return due;
    }
  }
  readOnLoop();
  return due;
}

SharedConnection::Clock::time_point SharedConnection::checkStall(Clock::time_point now,
                                                                 Watcher who) noexcept {
  ReleasableLock lock(mutex_);
  const bool concerned = who == Watcher::loop ? pending_.background() > 0 : !pending_.empty();
  if (state_ != State::up || !concerned) {
    return Clock::time_point::max();
  }
  const auto again = pending_.judgeStall(now);
  if (again == Clock::time_point::max()) {
    fail(lock, {Errc::timedOut, stallText_.c_str()});
  }
  return again;
}

void SharedConnection::takeCompleted(RequestQueue& queue) noexcept {
  const MutexLock lock(mutex_);
  queue.append(completed_);
}

std::optional<SharedConnection::Remains> SharedConnection::dismantle() noexcept {
  const MutexLock lock(mutex_);
  if (state_ != State::failing || reading_ || output_.hasWriter()) {
    return std::nullopt;
  }
  watch_.reset();
  state_ = closing_ ? State::closed : State::down;
  return Remains{failure_, pending_.useful(), upSince_, session_, std::move(stream_)};
}

std::optional<std::uint64_t> SharedConnection::answered() noexcept {
  const MutexLock lock(mutex_);
  return state_ == State::up ? std::optional(pending_.answered()) : std::nullopt;
}

}  // namespace rlock::detail::net
