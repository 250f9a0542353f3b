// SPDX-License-Identifier: Apache-2.0
#include "net/shared_connection.hpp"

#include "base/futex.hpp"
#include "net/link_settings.hpp"

#include <fmt/format.h>
#include <uv.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace rlock::detail::net {

namespace {

constexpr std::size_t kReplyReadSize = std::size_t{64} << 10;
// A buffer keeps no more memory of a burst.
constexpr std::size_t kBufferKept = std::size_t{1} << 20;

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
      spin_(spin),
      wakeLoop_(std::move(wakeLoop)),
      roundTrip_(spin.count() > 0 && std::thread::hardware_concurrency() > 1),
      pending_(replyTimeout),
      readBuffer_(kReplyReadSize) {}

void SharedConnection::start(Loop& loop, Established established, Poll::Callback onPollable) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLRDHUP | EPOLLONESHOT;
  if (!epoll ||
      ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, established.stream->descriptor(), &event) != 0) {
    throw Error(Errc::connectionFailed,
                fmt::format("cannot watch the socket: {}", std::strerror(errno)));
  }
  auto poll = std::make_unique<Poll>(loop, epoll.get());
  poll->start(UV_READABLE, std::move(onPollable));
  ReplyReader reader;
  // Nothing can fail from here on.
  const MutexLock lock(mutex_);
  upSince_ = Clock::now();
  poll_ = std::move(poll);
  epoll_ = std::move(epoll);
  stream_ = std::move(established.stream);
  session_ = std::move(established.session);
  pending_.begin(session_->canBeKilled(), upSince_);
  reader_ = std::move(reader);
  out_.clear();
  writeBuffer_.clear();
  written_ = 0;
  armFailed_ = false;
  armed_ = EPOLLRDHUP;
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
  const FormattedCommand command(argv);
  const auto now = Clock::now();
  ReleasableLock lock(mutex_);
  if (state_ != State::up || !pending_.accepts(request)) {
    return false;
  }
  append(request, command.bytes(), mode, now);
  if (onLoop) {
    return true;
  }
  if (mode == Mode::background) {
    watchBackground();
  }
  if (!writing_) {
    write(lock);
  }
  return true;
}

bool SharedConnection::submitGroup(std::span<const CommandTransport::Part> group) {
  std::string bytes;
  std::vector<std::size_t> sizes;
  for (const CommandTransport::Part& part : group) {
    const FormattedCommand command(part.argv);
    bytes += command.bytes();
    sizes.push_back(command.bytes().size());
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
  // As append(), and all or none.
  out_ += bytes;
  for (std::size_t i = 0; i < group.size(); ++i) {
    pending_.append(group[i].request, sizes[i], Mode::background, now);
  }
  return true;
}

void SharedConnection::append(Request& request,
                              std::string_view bytes,
                              Mode mode,
                              Clock::time_point now) {
  // The last step that can fail. Were the command appended without its place in the order of
  // replies, or the other way round, each later reply would reach the wrong request.
  out_ += bytes;
  pending_.append(request, bytes.size(), mode, now);
}

/// After a request was added that no thread awaits.
void SharedConnection::watchBackground() noexcept {
  if (pending_.background() == 1) {
    // The loop must watch for its reply not coming.
    wakeLoop_();
  }
  arm();
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

SharedConnection::Awaited SharedConnection::await(Request& request,
                                                  Clock::time_point deadline) noexcept {
  if (PendingRequests::done(request)) {
    return Awaited::complete;
  }
  bool leading = false;
  {
    const MutexLock lock(mutex_);
    // The race with the reader, or with a failure: the request may have ended under the mutex while
    // its done bit is yet to be set. It has no connection to read any more, and its thread waits
    // for that bit.
    if (request.delivery() == Request::Delivery::pending) {
      leading = !std::exchange(reading_, true);
      if (!leading) {
        pending_.enlist(request);
      }
    }
  }
  return leading ? lead(request, deadline) : follow(request, deadline);
}

SharedConnection::Awaited SharedConnection::follow(Request& request,
                                                   Clock::time_point deadline) noexcept {
  auto stallAt = request.submittedAt() + replyTimeout_;
  for (;;) {
    std::uint32_t word = 0;
    switch (PendingRequests::next(request, word)) {
      case PendingRequests::Next::lead:
        return lead(request, deadline);
      case PendingRequests::Next::done:
        return Awaited::complete;
      case PendingRequests::Next::interrupt:
        if (leave(request)) {
          return Awaited::interrupted;
        }
        // The race with the reader: it has just ended the request or made this thread the reader,
        // and the next look at the word says which.
        ::sched_yield();
        continue;
      case PendingRequests::Next::sleep:
        break;
    }
    futexWait(PendingRequests::word(request), word, std::min(deadline, stallAt));
    const auto now = Clock::now();
    if (now >= deadline) {
      if (leave(request)) {
        return Awaited::timedOut;
      }
      // The same race as above.
      ::sched_yield();
    } else if (now >= stallAt && !PendingRequests::done(request)) {
      stallAt = endStall(now);
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

SharedConnection::Awaited SharedConnection::lead(Request& request,
                                                 Clock::time_point deadline) noexcept {
  auto stallAt = request.submittedAt() + replyTimeout_;
  Awaited result = Awaited::complete;
  while (!PendingRequests::done(request)) {
    readSome(&request, std::min(deadline, stallAt));
    if (PendingRequests::done(request)) {
      break;
    }
    const bool interrupted = PendingRequests::interrupted(request);
    const auto now = Clock::now();
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
      stallAt = endStall(now);
    }
  }
  handOver();
  return result;
}

SharedConnection::Clock::time_point SharedConnection::endStall(Clock::time_point now) noexcept {
  ReleasableLock lock(mutex_);
  return state_ == State::up && !pending_.empty() ? judgeStall(lock, now)
                                                  : Clock::time_point::max();
}

/// The one judgement of a silent connection, for the loop and for waiting threads. Returns when to
/// look again; max() when it has ended the connection.
SharedConnection::Clock::time_point SharedConnection::judgeStall(ReleasableLock& lock,
                                                                 Clock::time_point now) noexcept {
  const auto again = pending_.judgeStall(now);
  if (again == Clock::time_point::max()) {
    fail(lock, {Errc::timedOut, stallText_.c_str()});
  }
  return again;
}

/// Returns how many bytes have come.
std::size_t SharedConnection::readSome(const Request* own, Clock::time_point until) noexcept {
  ssize_t count = -1;
  errno = EAGAIN;
  if (own == nullptr) {
    count = stream_->read(readBuffer_.data(), readBuffer_.size(), false);
  } else {
    if (roundTrip_.polls()) {
      const auto start = Clock::now();
      for (;;) {
        count = stream_->read(readBuffer_.data(), readBuffer_.size(), false);
        if (count >= 0 || errno != EAGAIN || Clock::now() - start >= spin_) {
          break;
        }
        // The server or another caller may need this processor to make the reply possible.
        ::sched_yield();
        errno = EAGAIN;
      }
    }
    if (count < 0 && errno == EAGAIN) {
      const auto left = until - Clock::now();
      if (left >= kReceiveSlice && !writeBlocked_.load(std::memory_order_relaxed)) {
        count = stream_->read(readBuffer_.data(), readBuffer_.size(), true);
      } else {
        waitForSocket(left);
        // After a pause of the process the reply may be there although its time is over.
        count = stream_->read(readBuffer_.data(), readBuffer_.size(), false);
      }
    }
  }
  if (count > 0) {
    process(static_cast<std::size_t>(count), own);
    return static_cast<std::size_t>(count);
  }
  if (count == 0) {
    fail({Errc::connectionFailed, "the server closed the connection"});
  } else if (errno != EAGAIN) {
    fail({Errc::connectionFailed, "reading failed", "", errno});
  }
  return 0;
}

/// For input, and for room for what could not be written: the loop may be busy with application
/// code for longer than a request may wait.
void SharedConnection::waitForSocket(Clock::duration left) noexcept {
  if (left <= Clock::duration::zero() || stream_->hasBufferedInput()) {
    return;
  }
  const bool blocked = writeBlocked_.load(std::memory_order_relaxed);
  pollfd descriptor{stream_->descriptor(), POLLIN, 0};
  if (blocked) {
    descriptor.events |= POLLOUT;
  }
  const auto wait = std::min<Clock::duration>(left, kReceiveSlice);
  ::poll(
      &descriptor, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(wait).count()));
  if (blocked && (descriptor.revents & POLLOUT) != 0) {
    resumeWriting();
  }
}

void SharedConnection::process(std::size_t size, const Request* own) noexcept {
  reader_.feed(readBuffer_.data(), size);
  for (;;) {
    std::size_t count = 0;
    auto next = ReplyReader::Next::reply;
    while (count < replies_.size()) {
      next = reader_.next(replies_[count]);
      if (next != ReplyReader::Next::reply) {
        break;
      }
      ++count;
    }
    const bool expected = hand(std::span(replies_).first(count), own);
    if (!expected || next == ReplyReader::Next::protocolError) {
      fail({Errc::protocolError,
            "the server sent what is no reply to a request",
            reader_.errorText()});
      return;
    }
    if (next == ReplyReader::Next::needMore) {
      return;
    }
  }
}

/// Returns false when there was no request for one of them.
bool SharedConnection::hand(std::span<Reply> replies, const Request* own) noexcept {
  if (replies.empty()) {
    return true;
  }
  const auto now = Clock::now();
  bool expected = true;
  PendingRequests::Ended ended;
  {
    const MutexLock lock(mutex_);
    if (state_ != State::up) {
      return true;
    }
    for (Reply& reply : replies) {
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
  }
  // Taken out of the queue first: once finished, its thread may submit it again.
  while (const RequestPtr request = ended.awaited.pop()) {
    if (request.get() == own) {
      roundTrip_.note(now - own->submittedAt());
    }
    finish(*request);
  }
  return expected;
}

void SharedConnection::finish(Request& request) noexcept {
  if (PendingRequests::finish(request)) {
    futexWakeOne(&PendingRequests::word(request));
  }
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
    next = pending_.appoint();
    if (!next.request) {
      reading_ = false;
      arm();
      return;
    }
  }
  if (next.asleep) {
    futexWakeOne(&PendingRequests::word(*next.request));
  }
}

/// Makes this thread the writer until all is written or the socket is full. Commands that others
/// append during a call to the kernel are written by the next one.
void SharedConnection::write(ReleasableLock& lock) noexcept {
  writing_ = true;
  while (state_ == State::up) {
    if (written_ == writeBuffer_.size()) {
      writeBuffer_.clear();
      written_ = 0;
      if (writeBuffer_.capacity() > kBufferKept) {
        writeBuffer_ = std::string();
      }
      if (out_.empty()) {
        break;
      }
      writeBuffer_.swap(out_);
    }
    const std::size_t rest = writeBuffer_.size() - written_;
    const char* data = writeBuffer_.data() + written_;
    pending_.offer(rest);
    // Not by the lock, where the analysis would lose sight of it.
    mutex_.unlock();
    const ssize_t count = stream_->write(data, rest);
    const int error = errno;
    mutex_.lock();
    if (state_ != State::up) {
      // The race with a reader whose failure came during the call: it has ended every request.
      break;
    }
    if (count > 0) {
      written_ += static_cast<std::size_t>(count);
      pending_.refused(rest - static_cast<std::size_t>(count));
      continue;
    }
    pending_.refused(rest);
    if (count < 0 && error == EAGAIN) {
      // No caller may wait for room: the loop goes on, or the reader if it finds room first.
      writeBlocked_.store(true, std::memory_order_relaxed);
      arm();
      return;
    }
    writing_ = false;
    fail(lock, {Errc::connectionFailed, "writing failed", "", count == 0 ? EPIPE : error});
    return;
  }
  writing_ = false;
  if (state_ == State::failing) {
    wakeLoop_();
  }
}

void SharedConnection::resumeWriting() noexcept {
  ReleasableLock lock(mutex_);
  if (state_ == State::up && writeBlocked_.load(std::memory_order_relaxed)) {
    writeBlocked_.store(false, std::memory_order_relaxed);
    write(lock);
  }
}

/// Has the loop woken for what nobody else waits for.
void SharedConnection::arm() noexcept {
  const bool input = pending_.background() > 0 && !reading_;
  const bool room = writeBlocked_.load(std::memory_order_relaxed);
  const std::uint32_t wanted = EPOLLRDHUP | (input ? static_cast<std::uint32_t>(EPOLLIN) : 0U) |
                               (room ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
  if ((armed_ & wanted) == wanted) {
    return;
  }
  epoll_event event{};
  event.events = armed_ | wanted | EPOLLONESHOT;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, stream_->descriptor(), &event) == 0) {
    armed_ |= wanted;
  } else if (!std::exchange(armFailed_, true)) {
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
  up_.store(false, std::memory_order_release);
  failure_ = why;
  const bool unanswered = !pending_.empty();
  PendingRequests::Ended ended;
  pending_.fail(session_, ended);
  completed_.append(ended.background);
  out_.clear();
  if (writeBlocked_.exchange(false, std::memory_order_relaxed)) {
    writing_ = false;
  }
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
  epoll_event event{};
  if (::epoll_wait(epoll_.get(), &event, 1, 0) <= 0) {
    return false;
  }
  {
    ReleasableLock lock(mutex_);
    armed_ = 0;
    if (state_ != State::up) {
      return false;
    }
    if (writeBlocked_.load(std::memory_order_relaxed) &&
        (event.events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) {
      writeBlocked_.store(false, std::memory_order_relaxed);
      write(lock);
      if (!lock.ownsLock() || state_ != State::up) {
        return false;
      }
    }
    // The race with a thread that has become the reader since the event: it reads for all.
    if (reading_ || (event.events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)) == 0) {
      // One event has switched off the others, which may still be waited for.
      arm();
      return false;
    }
    reading_ = true;
  }
  for (int i = 0; i < kReadsPerPass; ++i) {
    // Less than a full buffer came: the socket is empty, the next read would only say so.
    if (readSome(nullptr, Clock::time_point::max()) < readBuffer_.size()) {
      break;
    }
  }
  handOver();
  return true;
}

SharedConnection::Clock::time_point SharedConnection::flush() noexcept {
  ReleasableLock lock(mutex_);
  if (state_ != State::up || closing_) {
    return Clock::time_point::max();
  }
  const auto due = stallDue();
  if (!writing_) {
    write(lock);
  }
  if (lock.ownsLock() && state_ == State::up) {
    arm();
  }
  return due;
}

SharedConnection::Clock::time_point SharedConnection::maintain() noexcept {
  ReleasableLock lock(mutex_);
  if (state_ != State::up) {
    return Clock::time_point::max();
  }
  const auto due = closing_ ? Clock::time_point::max() : stallDue();
  if (std::exchange(armFailed_, false)) {
    arm();
    if (armFailed_) {
      fail(lock, {Errc::connectionFailed, "cannot watch the socket"});
    }
  }
  return due;
}

SharedConnection::Clock::time_point SharedConnection::checkStall() noexcept {
  const auto now = Clock::now();
  ReleasableLock lock(mutex_);
  return state_ == State::up && pending_.background() > 0 ? judgeStall(lock, now)
                                                          : Clock::time_point::max();
}

SharedConnection::Clock::time_point SharedConnection::stallDue() const noexcept {
  return pending_.background() > 0 ? pending_.stallDue() : Clock::time_point::max();
}

void SharedConnection::takeCompleted(RequestQueue& queue) noexcept {
  const MutexLock lock(mutex_);
  queue.append(completed_);
}

std::optional<SharedConnection::Remains> SharedConnection::dismantle() noexcept {
  const MutexLock lock(mutex_);
  if (state_ != State::failing || reading_ || writing_) {
    return std::nullopt;
  }
  poll_.reset();
  epoll_.reset();
  state_ = closing_ ? State::closed : State::down;
  return Remains{failure_, pending_.useful(), std::move(stream_)};
}

std::optional<std::uint64_t> SharedConnection::answered() noexcept {
  const MutexLock lock(mutex_);
  return state_ == State::up ? std::optional(pending_.answered()) : std::nullopt;
}

}  // namespace rlock::detail::net
