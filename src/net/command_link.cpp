// SPDX-License-Identifier: Apache-2.0
#include "net/command_link.hpp"

#include "base/futex.hpp"

#include <fmt/format.h>
#include <uv.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace rlock::detail::net {

namespace {

constexpr std::size_t kReplyReadSize = std::size_t{64} << 10;
// And it completes no more requests, nor for longer, before it looks at timers and sockets again.
constexpr int kCompletionsPerPass = 256;
constexpr std::chrono::milliseconds kCompletingPerPass{5};
// What a buffer may keep of a burst.
constexpr std::size_t kBufferKept = std::size_t{1} << 20;
// Polling pays while replies come quicker than a sleeping thread is woken. The two limits differ
// because a measured round trip includes that wake-up once polling is off.
constexpr std::chrono::microseconds kPollBelow{150};
constexpr std::chrono::microseconds kSleepAbove{200};

}  // namespace

/// A heartbeat: its reply only has to come.
class CommandLink::Ping final : public Request {
 public:
  Ping() noexcept : Request(Purpose::upkeep) {}

 private:
  void completed() noexcept override {}
};

void Request::interrupt() noexcept {
  const std::uint32_t before = state_.fetch_or(kInterrupted, std::memory_order_acq_rel);
  if ((before & kSleeping) != 0) {
    futexWakeOne(&state_);
  }
}

CommandLink::CommandLink(std::shared_ptr<Loop> loop,
                         LinkSettings settings,
                         LinkEvents& events,
                         std::chrono::microseconds spin)
    : loop_(std::move(loop)),
      settings_(std::move(settings)),
      events_(events),
      spin_(spin),
      mayPoll_(spin.count() > 0 && std::thread::hardware_concurrency() > 1),
      polling_(mayPoll_),
      stallText_(fmt::format("no reply within {} ms", settings_.replyTimeout.count())),
      pending_(settings_.replyTimeout),
      readBuffer_(kReplyReadSize),
      dialer_(*loop_, settings_, true),
      work_(*loop_, [this] { work(); }),
      flush_(*loop_, [this] { flushAtPassEnd(); }),
      redial_(*loop_, [this] { dial(); }),
      heartbeat_(*loop_, [this] { heartbeat(); }),
      stall_(*loop_, [this] { checkStall(); }) {}

CommandLink::~CommandLink() = default;

void CommandLink::open() {
  dial();
}

void CommandLink::dial() noexcept {
  try {
    dialer_.dial([this](Result<Established> result) {
      if (result.has_value()) {
        established(std::move(result).value());
        return;
      }
      const Error error = result.error();
      dial();
      tell([&] { events_.onDown(error); });
    });
  } catch (const std::exception& error) {
    // Whatever was missing, a link that stops trying would be missing for good.
    redial_.armAt(Clock::now() + settings_.reconnectDelayMax);
    tell([&] { events_.onDown(Error(Errc::connectionFailed, error.what())); });
  }
}

void CommandLink::established(Established established) noexcept {
  const auto session = established.session;
  try {
    startOn(std::move(established));
  } catch (const std::exception& error) {
    dial();
    tell([&] { events_.onDown(Error(Errc::connectionFailed, error.what())); });
    return;
  }
  counters_.connections.fetch_add(1, std::memory_order_relaxed);
  answeredAtHeartbeat_ = 0;
  heartbeat_.armAt(Clock::now() + settings_.heartbeatInterval);
  tell([&] { events_.onUp(session); });
}

void CommandLink::startOn(Established established) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLRDHUP | EPOLLONESHOT;
  if (!epoll ||
      ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, established.stream->descriptor(), &event) != 0) {
    throw Error(Errc::connectionFailed,
                fmt::format("cannot watch the socket: {}", std::strerror(errno)));
  }
  auto poll = std::make_unique<Poll>(*loop_, epoll.get());
  poll->start(UV_READABLE, [this](int, int) { onPollable(); });
  ReplyReader reader;
  // Nothing can fail from here on.
  poll_ = std::move(poll);
  const MutexLock lock(mutex_);
  upSince_ = Clock::now();
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

void CommandLink::close() noexcept {
  dialer_.cancel();
  redial_.disarm();
  heartbeat_.disarm();
  stall_.disarm();
  {
    ReleasableLock lock(mutex_);
    closing_ = true;
    if (state_ == State::up) {
      fail(lock, {Errc::closed, "the client was closed"});
    }
  }
  {
    const MutexLock lock(mutex_);
    if (state_ == State::down) {
      state_ = State::closed;
    }
  }
  tearDown();
}

bool CommandLink::submit(Request& request, std::span<const std::string_view> argv, Mode mode) {
  const FormattedCommand command(argv);

  const bool onLoop = mode == Mode::background && loop_->onLoopThread();
  const auto now = Clock::now();
  ReleasableLock lock(mutex_);
  if (state_ != State::up || !pending_.accepts(request)) {
    return false;
  }
  // The last step that can fail. Were the command appended without its place in the order of
  // replies, or the other way round, each later reply would reach the wrong request.
  out_ += command.bytes();
  pending_.append(request, command.bytes().size(), mode, now);
  counters_.commands.fetch_add(1, std::memory_order_relaxed);
  if (mode == Mode::background) {
    if (onLoop) {
      flush_.atPassEnd(shared_from_this());
      return true;
    }
    if (pending_.background() == 1) {
      // The loop must watch for its reply not coming.
      wakeLoop();
    }
    arm();
  }
  if (!writing_) {
    flush(lock);
  }
  return true;
}

void CommandLink::distrust() noexcept {
  const MutexLock lock(mutex_);
  pending_.distrust();
}

void CommandLink::abandon(Clock::time_point since, Errc errc, const char* what) noexcept {
  ReleasableLock lock(mutex_);
  if (since >= upSince_) {
    fail(lock, {errc, what});
  }
}

void CommandLink::flushAtPassEnd() noexcept {
  ReleasableLock lock(mutex_);
  if (state_ != State::up || closing_) {
    return;
  }
  if (pending_.background() > 0 && !stall_.armed()) {
    stall_.armAt(pending_.stallDue());
  }
  if (!writing_) {
    flush(lock);
  }
  if (lock.ownsLock() && state_ == State::up) {
    arm();
  }
}

void CommandLink::flush(ReleasableLock& lock) noexcept {
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
    wakeLoop();
  }
}

void CommandLink::resumeWriting() noexcept {
  ReleasableLock lock(mutex_);
  if (state_ == State::up && writeBlocked_.load(std::memory_order_relaxed)) {
    writeBlocked_.store(false, std::memory_order_relaxed);
    flush(lock);
  }
}

CommandLink::Awaited CommandLink::await(Request& request, Clock::time_point deadline) {
  if (PendingRequests::done(request)) {
    return Awaited::complete;
  }
  bool leading = false;
  {
    const MutexLock lock(mutex_);
    // A request that is over has no connection to read any more, even while whoever ended it has
    // yet to say so.
    if (request.delivery() == Request::Delivery::pending) {
      leading = !std::exchange(reading_, true);
      if (!leading) {
        pending_.enlist(request);
      }
    }
  }
  return leading ? lead(request, deadline) : follow(request, deadline);
}

/// The one judgement of a silent connection, for the loop and for waiting threads. Returns when to
/// look again; max() when it has ended the connection.
CommandLink::Clock::time_point CommandLink::judgeStall(ReleasableLock& lock,
                                                       Clock::time_point now) noexcept {
  const auto again = pending_.judgeStall(now);
  if (again == Clock::time_point::max()) {
    fail(lock, {Errc::timedOut, stallText_.c_str()});
  }
  return again;
}

CommandLink::Clock::time_point CommandLink::endStall(Clock::time_point now) noexcept {
  ReleasableLock lock(mutex_);
  return state_ == State::up && !pending_.empty() ? judgeStall(lock, now)
                                                  : Clock::time_point::max();
}

CommandLink::Awaited CommandLink::follow(Request& request, Clock::time_point deadline) noexcept {
  auto stallAt = request.submittedAt() + settings_.replyTimeout;
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
        // It is over, or this thread is about to be the reader.
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
      ::sched_yield();
    } else if (now >= stallAt && !PendingRequests::done(request)) {
      stallAt = endStall(now);
    }
  }
}

/// Returns false when the request is over or this thread was made the reader: both must be dealt
/// with before it leaves.
bool CommandLink::leave(Request& request) noexcept {
  const MutexLock lock(mutex_);
  if (!pending_.leave(request)) {
    return false;
  }
  arm();
  wakeLoop();
  return true;
}

CommandLink::Awaited CommandLink::lead(Request& request, Clock::time_point deadline) noexcept {
  auto stallAt = request.submittedAt() + settings_.replyTimeout;
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
        arm();
        wakeLoop();
        break;
      }
      continue;
    }
    if (now >= stallAt) {
      stallAt = endStall(now);
    }
  }
  handOver();
  return result;
}

void CommandLink::noteRoundTrip(Clock::duration measured) noexcept {
  const std::int64_t sample = measured.count();
  const std::int64_t old = roundTrip_.load(std::memory_order_relaxed);
  const std::int64_t smooth = old == 0 ? sample : old + (sample - old) / 8;
  roundTrip_.store(smooth, std::memory_order_relaxed);
  if (mayPoll_) {
    const bool polling = polling_.load(std::memory_order_relaxed);
    if (polling && smooth > std::chrono::nanoseconds(kSleepAbove).count()) {
      polling_.store(false, std::memory_order_relaxed);
    } else if (!polling && smooth < std::chrono::nanoseconds(kPollBelow).count()) {
      polling_.store(true, std::memory_order_relaxed);
    }
  }
}

/// Returns how many bytes have come.
std::size_t CommandLink::readSome(const Request* own, Clock::time_point until) noexcept {
  ssize_t count = -1;
  errno = EAGAIN;
  if (own == nullptr) {
    count = stream_->read(readBuffer_.data(), readBuffer_.size(), false);
  } else {
    if (polling_.load(std::memory_order_relaxed)) {
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
void CommandLink::waitForSocket(Clock::duration left) noexcept {
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

void CommandLink::process(std::size_t size, const Request* own) noexcept {
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
bool CommandLink::hand(std::span<Reply> replies, const Request* own) noexcept {
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
      wakeLoop();
    }
    completed_.append(ended.background);
  }
  // Taken out of the queue first: once finished, its thread may submit it again.
  while (const RequestPtr request = ended.awaited.pop()) {
    if (request.get() == own) {
      noteRoundTrip(now - own->submittedAt());
    }
    finish(*request);
  }
  return expected;
}

void CommandLink::finish(Request& request) noexcept {
  if (PendingRequests::finish(request)) {
    futexWakeOne(&PendingRequests::word(request));
  }
}

void CommandLink::handOver() noexcept {
  PendingRequests::Leader next;
  {
    const MutexLock lock(mutex_);
    if (state_ != State::up) {
      reading_ = false;
      wakeLoop();
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

/// Has the loop woken for what nobody else waits for.
void CommandLink::arm() noexcept {
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
    wakeLoop();
  }
}

void CommandLink::fail(const Failure& why) noexcept {
  ReleasableLock lock(mutex_);
  fail(lock, why);
}

// Not analysed: it releases what its callers have taken, unless there is nothing to do.
void CommandLink::fail(ReleasableLock& lock,
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
  // What was just written before an orderly end is still to arrive; what nobody counts on any more
  // is not.
  if (unanswered && !closing_) {
    stream_->abort();
  } else {
    stream_->shutdown();
  }
  lock.unlock();
  while (const RequestPtr request = ended.awaited.pop()) {
    finish(*request);
  }
  wakeLoop();
}

void CommandLink::onPollable() noexcept {
  epoll_event event{};
  if (::epoll_wait(epoll_.get(), &event, 1, 0) <= 0) {
    return;
  }
  const auto self = shared_from_this();
  {
    ReleasableLock lock(mutex_);
    armed_ = 0;
    if (state_ != State::up) {
      return;
    }
    if (writeBlocked_.load(std::memory_order_relaxed) &&
        (event.events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) {
      writeBlocked_.store(false, std::memory_order_relaxed);
      flush(lock);
      if (!lock.ownsLock() || state_ != State::up) {
        return;
      }
    }
    if (reading_ || (event.events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)) == 0) {
      // One event has switched off the others, which may still be waited for.
      arm();
      return;
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
  runCompleted();
}

/// What other threads have left to the loop.
void CommandLink::work() noexcept {
  tearDown();
  {
    ReleasableLock lock(mutex_);
    if (state_ == State::up && !closing_ && pending_.background() > 0 && !stall_.armed()) {
      stall_.armAt(pending_.stallDue());
    }
    if (state_ == State::up && std::exchange(armFailed_, false)) {
      arm();
      if (armFailed_) {
        fail(lock, {Errc::connectionFailed, "cannot watch the socket"});
      }
    }
  }
  runCompleted();
}

void CommandLink::runCompleted() noexcept {
  {
    const MutexLock lock(mutex_);
    running_.append(completed_);
  }
  const auto end = Clock::now() + kCompletingPerPass;
  for (int count = 0; !running_.empty(); ++count) {
    // The loop of a closed link may take no more work.
    if (!closing_ && (count >= kCompletionsPerPass || Clock::now() >= end)) {
      wakeLoop();
      return;
    }
    const RequestPtr request = running_.pop();
    PendingRequests::complete(*request);
  }
}

void CommandLink::tearDown() noexcept {
  Failure failure;
  bool useful = false;
  std::unique_ptr<Stream> stream;
  {
    const MutexLock lock(mutex_);
    if (state_ != State::failing || reading_ || writing_) {
      return;
    }
    poll_.reset();
    stream = std::move(stream_);
    epoll_.reset();
    state_ = closing_ ? State::closed : State::down;
    failure = failure_;
    useful = pending_.useful();
  }
  stream.reset();
  heartbeat_.disarm();
  stall_.disarm();
  if (closing_) {
    return;
  }
  // A connection that has lasted is no part of a storm, whatever it was used for.
  if (useful || Clock::now() - upSince_ > settings_.reconnectDelayMax) {
    dialer_.succeeded();
  }
  if (failure.errc == Errc::readOnly) {
    dialer_.preferOthers();
  }
  std::optional<Error> error;
  tell([&] { error = describe(failure); });
  dial();
  if (error) {
    tell([&] { events_.onDown(*error); });
  }
}

Error CommandLink::describe(const Failure& why) const {
  std::string text(why.what);
  if (*why.detail != '\0') {
    text.append(": ").append(why.detail);
  }
  if (why.error != 0) {
    text.append(": ").append(std::strerror(why.error));
  }
  ErrorContext context;
  context.node = session_->node;
  return Error(why.errc, text, std::move(context));
}

template <class F>
void CommandLink::tell(F&& event) noexcept {
  try {
    event();
  } catch (const std::exception& error) {
    if (settings_.log) {
      settings_.log->write(LogLevel::error, error.what());
    }
  }
}

void CommandLink::heartbeat() {
  std::uint64_t answered = 0;
  {
    const MutexLock lock(mutex_);
    if (state_ != State::up) {
      return;
    }
    answered = pending_.answered();
  }
  heartbeat_.armAt(Clock::now() + settings_.heartbeatInterval);
  if (answered == std::exchange(answeredAtHeartbeat_, answered)) {
    constexpr std::array<std::string_view, 1> kPing{"PING"};
    const auto ping = makeIntrusive<Ping>();
    submit(*ping, kPing, Mode::background);
  }
}

void CommandLink::checkStall() noexcept {
  const auto now = Clock::now();
  ReleasableLock lock(mutex_);
  if (state_ == State::up && pending_.background() > 0) {
    stall_.armAt(judgeStall(lock, now));
  }
}

}  // namespace rlock::detail::net
