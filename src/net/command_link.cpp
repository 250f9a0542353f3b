// SPDX-License-Identifier: Apache-2.0
#include "net/command_link.hpp"

#include "net/socket.hpp"
#include <rlock/detail/futex.hpp>

#include <fmt/format.h>
#include <uv.h>

#include <algorithm>
#include <array>
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

constexpr std::size_t kReadSize = std::size_t{64} << 10;
// The loop answers for at most this much input before it lets its other work run.
constexpr int kReadsPerPass = 16;
// Polling pays while replies come quicker than a sleeping thread is woken. The two limits differ
// because a measured round trip includes that wake-up once polling is off.
constexpr std::chrono::microseconds kPollBelow{150};
constexpr std::chrono::microseconds kSleepAbove{200};
constexpr std::chrono::milliseconds kSecondLook{10};

}  // namespace

/// A heartbeat: its reply only has to come.
class CommandLink::Ping final : public Request {
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
      readBuffer_(kReadSize),
      dialer_(*loop_, settings_, true),
      heartbeat_(*loop_, [this] { heartbeat(); }),
      stall_(*loop_, [this] { checkStall(); }) {}

CommandLink::~CommandLink() {
  if (epoll_ >= 0) {
    ::close(epoll_);
  }
}

void CommandLink::open() {
  dial();
}

void CommandLink::dial() {
  dialer_.dial([this](Result<Established> result) {
    if (result.has_value()) {
      established(std::move(result).value());
      return;
    }
    const Error error = result.error();
    dial();
    events_.onDown(error);
  });
}

void CommandLink::established(Established established) {
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{};
  event.events = EPOLLRDHUP | EPOLLONESHOT;
  if (epoll < 0 ||
      ::epoll_ctl(epoll, EPOLL_CTL_ADD, established.stream->descriptor(), &event) != 0) {
    const int error = errno;
    if (epoll >= 0) {
      ::close(epoll);
    }
    dial();
    events_.onDown(Error(Errc::connectionFailed,
                         fmt::format("cannot watch the socket: {}", std::strerror(error))));
    return;
  }
  poll_ = std::make_unique<Poll>(*loop_, epoll);
  poll_->start(UV_READABLE, [this](int, int) { onPollable(); });
  const auto session = established.session;
  {
    const Lock lock(mutex_);
    epoll_ = epoll;
    stream_ = std::move(established.stream);
    session_ = session;
    killable_ = session->canBeFenced();
    upSince_ = Clock::now();
    reader_ = ReplyReader();
    out_.clear();
    writeBuffer_.clear();
    written_ = 0;
    appended_ = 0;
    possiblySent_ = 0;
    stallSuspected_ = false;
    armed_ = EPOLLRDHUP;
    state_ = State::up;
    up_.store(true, std::memory_order_release);
  }
  counters_.connections.fetch_add(1, std::memory_order_relaxed);
  receivedAtHeartbeat_ = 0;
  heartbeat_.armAt(Clock::now() + settings_.heartbeatInterval);
  dialer_.succeeded();
  events_.onUp(session);
}

void CommandLink::close() noexcept {
  dialer_.cancel();
  heartbeat_.disarm();
  stall_.disarm();
  Lock lock(mutex_);
  closing_ = true;
  if (state_ == State::up) {
    fail(lock, Errc::closed, "the client was closed");
  }
  if (!lock.owns_lock()) {
    lock.lock();
  }
  if (state_ == State::down) {
    state_ = State::closed;
  }
  lock.unlock();
  tearDown();
}

bool CommandLink::submit(Request& request, std::span<const std::string_view> argv, Mode mode) {
  const FormattedCommand command(argv);

  const bool onLoop = mode == Mode::background && loop_->onLoopThread();
  const auto now = Clock::now();
  Lock lock(mutex_);
  if (state_ != State::up || (request.onlyIfKillable_ && !killable_)) {
    return false;
  }
  pending_.emplace_back(&request);
  request.state_.fetch_and(Request::kInterrupted, std::memory_order_relaxed);
  request.delivery_ = Request::Delivery::pending;
  request.awaited_ = mode == Mode::awaited;
  request.arrived_ = false;
  request.session_.reset();
  request.submittedAt_ = now;
  out_ += command.bytes();
  appended_ += command.bytes().size();
  request.endOffset_ = appended_;
  counters_.commands.fetch_add(1, std::memory_order_relaxed);
  if (mode == Mode::background) {
    ++backgroundPending_;
    if (onLoop) {
      if (!flushScheduled_) {
        flushScheduled_ = true;
        loop_->atPassEnd([self = shared_from_this()] {
          Lock inner(self->mutex_);
          self->flushScheduled_ = false;
          if (self->state_ != State::up || self->closing_) {
            return;
          }
          if (!self->stall_.armed()) {
            self->stall_.armAt(Clock::now() + self->settings_.replyTimeout);
          }
          if (!self->writing_) {
            self->flush(inner);
          }
          if (inner.owns_lock() && self->state_ == State::up && self->backgroundPending_ > 0 &&
              !self->reading_) {
            self->arm(true);
          }
        });
      }
      return true;
    }
    if (backgroundPending_ == 1) {
      watchForStall(now + settings_.replyTimeout);
    }
    if (!reading_) {
      arm(true);
    }
  }
  if (!writing_) {
    flush(lock);
  }
  return true;
}

void CommandLink::distrust() noexcept {
  const Lock lock(mutex_);
  killable_ = false;
}

void CommandLink::abandon(Clock::time_point since, Errc errc, const char* what) {
  Lock lock(mutex_);
  if (since >= upSince_) {
    fail(lock, errc, what);
  }
}

void CommandLink::flush(Lock& lock) {
  writing_ = true;
  while (state_ == State::up) {
    if (written_ == writeBuffer_.size()) {
      writeBuffer_.clear();
      written_ = 0;
      if (out_.empty()) {
        break;
      }
      writeBuffer_.swap(out_);
    }
    const std::size_t rest = writeBuffer_.size() - written_;
    const char* data = writeBuffer_.data() + written_;
    // Until the call returns, any of these bytes may be on their way.
    possiblySent_ += rest;
    lock.unlock();
    const ssize_t count = stream_->write(data, rest);
    const int error = errno;
    lock.lock();
    if (state_ != State::up) {
      break;
    }
    if (count > 0) {
      written_ += static_cast<std::size_t>(count);
      possiblySent_ -= rest - static_cast<std::size_t>(count);
      continue;
    }
    possiblySent_ -= rest;
    if (count < 0 && error == EAGAIN) {
      // The loop stays the writer until there is room: no caller may wait for that.
      writeBlocked_ = true;
      arm(backgroundPending_ > 0 && !reading_);
      return;
    }
    writing_ = false;
    fail(lock,
         Errc::connectionFailed,
         fmt::format("writing failed: {}", std::strerror(count == 0 ? EPIPE : error)));
    return;
  }
  writing_ = false;
  if (state_ == State::failing) {
    leaveRole();
  }
}

CommandLink::Awaited CommandLink::await(Request& request, Clock::time_point deadline) {
  if (request.done()) {
    return Awaited::complete;
  }
  bool leading = false;
  {
    const Lock lock(mutex_);
    if (request.done()) {
      return Awaited::complete;
    }
    request.arrived_ = true;
    if (!std::exchange(reading_, true)) {
      leading = true;
    }
  }
  return leading ? lead(request, deadline) : follow(request, deadline);
}

/// The first time somebody finds a reply overdue it gets a second look: the process may just have
/// been stopped, and the reader has not read yet. True when it was suspected before and nothing
/// came since.
bool CommandLink::suspectStall() {
  const Lock lock(mutex_);
  return std::exchange(stallSuspected_, true);
}

CommandLink::Awaited CommandLink::follow(Request& request, Clock::time_point deadline) {
  auto stallAt = request.submittedAt_ + settings_.replyTimeout;
  for (;;) {
    std::uint32_t word = request.state_.load(std::memory_order_acquire);
    if ((word & Request::kLead) != 0) {
      return lead(request, deadline);
    }
    if ((word & Request::kDone) != 0) {
      return Awaited::complete;
    }
    if ((word & Request::kInterrupted) != 0) {
      if (const auto left = leave(request, Awaited::interrupted)) {
        return *left;
      }
      continue;
    }
    if ((word & Request::kSleeping) == 0) {
      if (!request.state_.compare_exchange_weak(
              word, word | Request::kSleeping, std::memory_order_acq_rel)) {
        continue;
      }
      word |= Request::kSleeping;
    }
    futexWait(request.state_, word, std::min(deadline, stallAt));
    const auto now = Clock::now();
    if (now >= deadline) {
      if (const auto left = leave(request, Awaited::timedOut)) {
        return *left;
      }
    } else if (now >= stallAt && !request.done() && !suspectStall()) {
      stallAt = now + kSecondLook;
    } else if (now >= stallAt && !request.done()) {
      fail(Errc::timedOut, fmt::format("no reply within {} ms", settings_.replyTimeout.count()));
    }
  }
}

std::optional<CommandLink::Awaited> CommandLink::leave(Request& request, Awaited why) {
  const Lock lock(mutex_);
  // Already answered, or made the reader: both must be dealt with before leaving.
  if (request.delivery_ != Request::Delivery::pending ||
      (request.state_.load(std::memory_order_acquire) & Request::kLead) != 0) {
    return std::nullopt;
  }
  detach(request);
  return why;
}

void CommandLink::detach(Request& request) {
  request.awaited_ = false;
  ++backgroundPending_;
  if (!reading_) {
    arm(true);
  }
  watchForStall(request.submittedAt_ + settings_.replyTimeout);
}

CommandLink::Awaited CommandLink::lead(Request& request, Clock::time_point deadline) {
  const auto stallAt = request.submittedAt_ + settings_.replyTimeout;
  const auto until = std::min(deadline, stallAt);
  Awaited result = Awaited::complete;
  while (!request.done()) {
    readSome(&request, until);
    if (request.done()) {
      break;
    }
    const bool interrupted =
        (request.state_.load(std::memory_order_acquire) & Request::kInterrupted) != 0;
    const auto now = Clock::now();
    if (interrupted || now >= deadline) {
      const Lock lock(mutex_);
      if (request.delivery_ == Request::Delivery::pending) {
        result = interrupted ? Awaited::interrupted : Awaited::timedOut;
        // This thread is still the reader, so detach() leaves the arming to handOver().
        detach(request);
        break;
      }
      continue;
    }
    if (now >= stallAt) {
      fail(Errc::timedOut, fmt::format("no reply within {} ms", settings_.replyTimeout.count()));
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

void CommandLink::readSome(const Request* own, Clock::time_point until) {
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
      if (left <= Clock::duration::zero()) {
        // After a pause of the process the reply may be there although its time is over.
        count = stream_->read(readBuffer_.data(), readBuffer_.size(), false);
      } else if (left >= kReceiveSlice) {
        count = stream_->read(readBuffer_.data(), readBuffer_.size(), true);
      } else {
        if (!stream_->hasBufferedInput()) {
          pollfd descriptor{stream_->descriptor(), POLLIN, 0};
          ::poll(&descriptor,
                 1,
                 static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count()));
        }
        count = stream_->read(readBuffer_.data(), readBuffer_.size(), false);
      }
    }
  }
  if (count > 0) {
    process(readBuffer_.data(), static_cast<std::size_t>(count), own);
  } else if (count == 0) {
    fail(Errc::connectionFailed, "the server closed the connection");
  } else if (errno != EAGAIN) {
    fail(Errc::connectionFailed, fmt::format("reading failed: {}", std::strerror(errno)));
  }
}

void CommandLink::process(const char* data, std::size_t size, const Request* own) {
  reader_.feed(data, size);
  replies_.clear();
  bool broken = false;
  for (;;) {
    Reply reply;
    const auto next = reader_.next(reply);
    if (next != ReplyReader::Next::reply) {
      broken = next == ReplyReader::Next::protocolError;
      break;
    }
    replies_.push_back(std::move(reply));
  }
  finished_.clear();
  std::vector<RequestPtr> background;
  {
    const Lock lock(mutex_);
    received_ += size;
    stallSuspected_ = false;
    if (state_ != State::up) {
      return;
    }
    for (Reply& reply : replies_) {
      if (pending_.empty()) {
        broken = true;
        break;
      }
      RequestPtr request = std::move(pending_.front());
      pending_.pop_front();
      request->reply_ = std::move(reply);
      request->delivery_ = Request::Delivery::replied;
      if (request->awaited_) {
        finished_.push_back(std::move(request));
      } else {
        --backgroundPending_;
        background.push_back(std::move(request));
      }
    }
  }
  for (const RequestPtr& request : finished_) {
    if (request.get() == own) {
      noteRoundTrip(Clock::now() - own->submittedAt_);
    }
    finish(*request);
  }
  finished_.clear();
  runCompleted(std::move(background));
  if (broken) {
    fail(Errc::protocolError,
         fmt::format("the server sent what is no reply to a request: {}", reader_.errorText()));
  }
}

void CommandLink::finish(Request& request) noexcept {
  const std::uint32_t before = request.state_.fetch_or(Request::kDone, std::memory_order_acq_rel);
  if ((before & Request::kSleeping) != 0) {
    futexWakeOne(&request.state_);
  }
}

void CommandLink::runCompleted(std::vector<RequestPtr> requests) {
  if (requests.empty()) {
    return;
  }
  if (loop_->onLoopThread()) {
    for (const RequestPtr& request : requests) {
      request->completed();
    }
    return;
  }
  loop_->post([requests = std::move(requests)] {
    for (const RequestPtr& request : requests) {
      request->completed();
    }
  });
}

void CommandLink::handOver() {
  RequestPtr next;
  std::uint32_t before = 0;
  {
    const Lock lock(mutex_);
    if (state_ != State::up) {
      reading_ = false;
      leaveRole();
      return;
    }
    for (const RequestPtr& request : pending_) {
      if (request->awaited_ && request->arrived_) {
        next = request;
        break;
      }
    }
    if (!next) {
      reading_ = false;
      arm(backgroundPending_ > 0);
      return;
    }
    // Under the mutex: a failure that ends this request must come after, so that its thread cannot
    // miss that it has the role.
    before = next->state_.fetch_or(Request::kLead, std::memory_order_acq_rel);
  }
  if ((before & Request::kSleeping) != 0) {
    futexWakeOne(&next->state_);
  }
}

void CommandLink::arm(bool input) noexcept {
  const std::uint32_t wanted = EPOLLRDHUP | (input ? static_cast<std::uint32_t>(EPOLLIN) : 0U) |
                               (writeBlocked_ ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
  if ((armed_ & wanted) == wanted) {
    return;
  }
  armed_ |= wanted;
  epoll_event event{};
  event.events = armed_ | EPOLLONESHOT;
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, stream_->descriptor(), &event);
}

void CommandLink::leaveRole() {
  loop_->post([self = shared_from_this()] { self->tearDown(); });
}

void CommandLink::fail(Errc errc, std::string_view what) {
  Lock lock(mutex_);
  fail(lock, errc, what);
}

void CommandLink::fail(Lock& lock, Errc errc, std::string_view what) {
  if (state_ != State::up) {
    return;
  }
  state_ = State::failing;
  up_.store(false, std::memory_order_release);
  ErrorContext context;
  context.node = session_->node;
  failure_ = Error(errc, what, std::move(context));
  std::vector<RequestPtr> awaited;
  std::vector<RequestPtr> background;
  for (RequestPtr& request : pending_) {
    const bool sent = request->endOffset_ <= possiblySent_;
    request->delivery_ = sent ? Request::Delivery::lost : Request::Delivery::unsent;
    if (sent) {
      request->session_ = session_;
    }
    (request->awaited_ ? awaited : background).push_back(std::move(request));
  }
  pending_.clear();
  backgroundPending_ = 0;
  out_.clear();
  if (writeBlocked_) {
    writeBlocked_ = false;
    writing_ = false;
  }
  // A thread that sleeps in a read must come back; the descriptor is closed once nobody uses it.
  stream_->shutdown();
  lock.unlock();
  for (const RequestPtr& request : awaited) {
    finish(*request);
  }
  auto self = shared_from_this();
  loop_->post([self, background = std::move(background)] {
    for (const RequestPtr& request : background) {
      request->completed();
    }
    self->tearDown();
  });
}

void CommandLink::onPollable() {
  epoll_event event{};
  if (::epoll_wait(epoll_, &event, 1, 0) <= 0) {
    return;
  }
  const auto self = shared_from_this();
  bool mustRead = false;
  {
    Lock lock(mutex_);
    armed_ = 0;
    if (state_ != State::up) {
      return;
    }
    if (writeBlocked_ && (event.events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) {
      writeBlocked_ = false;
      flush(lock);
      if (!lock.owns_lock() || state_ != State::up) {
        return;
      }
    }
    if ((event.events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)) != 0 && !reading_) {
      reading_ = true;
      mustRead = true;
    } else if (!reading_) {
      arm(backgroundPending_ > 0);
    }
  }
  if (!mustRead) {
    return;
  }
  for (int i = 0; i < kReadsPerPass; ++i) {
    const std::uint64_t before = received_;
    readSome(nullptr, Clock::time_point::max());
    // Less than a full buffer came: the socket is empty, the next read would only say so.
    if (received_ - before < readBuffer_.size()) {
      break;
    }
  }
  handOver();
}

void CommandLink::tearDown() {
  Error failure(Errc::connectionFailed);
  {
    const Lock lock(mutex_);
    if (state_ != State::failing || reading_ || writing_) {
      return;
    }
    poll_.reset();
    stream_.reset();
    if (epoll_ >= 0) {
      ::close(epoll_);
      epoll_ = -1;
    }
    state_ = closing_ ? State::closed : State::down;
    failure = failure_;
  }
  heartbeat_.disarm();
  stall_.disarm();
  if (failure.errc() == Errc::readOnly) {
    dialer_.preferOthers();
  }
  if (!closing_) {
    dial();
    events_.onDown(failure);
  }
}

void CommandLink::heartbeat() {
  std::uint64_t received = 0;
  {
    const Lock lock(mutex_);
    if (state_ != State::up) {
      return;
    }
    received = received_;
  }
  heartbeat_.armAt(Clock::now() + settings_.heartbeatInterval);
  if (received == std::exchange(receivedAtHeartbeat_, received)) {
    constexpr std::array<std::string_view, 1> kPing{"PING"};
    const auto ping = makeIntrusive<Ping>();
    submit(*ping, kPing, Mode::background);
  }
}

void CommandLink::watchForStall(Clock::time_point due) {
  if (loop_->onLoopThread()) {
    if (!stall_.armed()) {
      stall_.armAt(due);
    }
    return;
  }
  loop_->post([self = shared_from_this(), due] {
    if (!self->stall_.armed() && !self->closing_) {
      self->stall_.armAt(due);
    }
  });
}

void CommandLink::checkStall() {
  const auto now = Clock::now();
  Lock lock(mutex_);
  if (state_ != State::up || backgroundPending_ == 0 || pending_.empty()) {
    return;
  }
  const auto due = pending_.front()->submittedAt_ + settings_.replyTimeout;
  if (now < due) {
    stall_.armAt(due);
    return;
  }
  if (!std::exchange(stallSuspected_, true)) {
    stall_.armAt(now + kSecondLook);
    return;
  }
  fail(lock, Errc::timedOut, fmt::format("no reply within {} ms", settings_.replyTimeout.count()));
}

}  // namespace rlock::detail::net
