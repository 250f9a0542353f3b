// SPDX-License-Identifier: Apache-2.0

// PubSubLink: the connection for subscriptions, on the loop thread only. SubscriptionBook says what
// to send and what replies mean; here are the socket, the dialling and the order of events. Any
// event may close the link or subscribe anew from within, so each function that told one looks
// again at what it stands on: `connection_` says whether the connection is still the same.

#include "net/pubsub_link.hpp"

#include "net/codec.hpp"
#include "net/master_watch.hpp"
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/net/command_format.hpp>
#include <rlock/detail/net/subscription_book.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

namespace rlock::detail::net {

using SteadyClock = std::chrono::steady_clock;

namespace {

constexpr std::size_t kMessageReadSize = std::size_t{16} << 10;

}  // namespace

/// Drives a SubscriptionBook over a socket: it connects while channels are wanted, writes the
/// requests of the book, passes it the replies and tells the owner what they mean.
///
/// All of it runs on the loop thread: the calls of the owner, the socket's and the timer's
/// callbacks. Requests are written once per pass of the loop, and so are never written inside a
/// call of the owner. An event may call the link again, close it or end its connection, so each
/// function that goes on after an event compares connection_ first.
///
/// A failure inside, for want of memory or in the protocol, ends the connection and nothing else:
/// the book then starts over from the wanted channels, on the next one.
class PubSubLink::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(std::shared_ptr<Loop> loop, LinkSettings settings, ChannelKind kind, PubSubEvents& events)
      : loop_(std::move(loop)),
        log_(settings.log),
        redialDelay_(settings.reconnectDelayMax),
        replyTimeout_(settings.replyTimeout),
        events_(&events),
        book_({.replyTimeout = settings.replyTimeout,
               .heartbeatInterval = settings.heartbeatInterval,
               .idleLinger = settings.idleLinger,
               .retryDelayMin = settings.reconnectDelayMin,
               .retryDelayMax = settings.reconnectDelayMax},
              kind),
        timer_(*loop_, [this] { onTimer(); }),
        redial_(*loop_, [this] { connect(); }),
        flush_(*loop_, [this] { flush(); }),
        dialer_(*loop_, std::move(settings), false) {}

  void subscribe(std::string channel);
  void unsubscribe(const std::string& channel);
  void renew();
  void leave();
  void close() noexcept;
  void follow(MasterWatch& watch);
  void requestsGoTo(const std::shared_ptr<const ServerSession>& server);
  [[nodiscard]] bool up() const noexcept { return stream_ != nullptr; }
  [[nodiscard]] std::size_t channels() const noexcept { return book_.wanted(); }

 private:
  void scheduleFlush() noexcept;
  void flush() noexcept;
  void sendDue();

  // The connection.
  void connect() noexcept;
  void onDialled(Result<Established> result) noexcept;
  void open(Established established);
  void onReady(int status);
  bool readAvailable();
  bool writePending();
  void lose(std::string_view reason,
            Errc errc = Errc::connectionFailed,
            LogLevel level = LogLevel::warning) noexcept;
  [[nodiscard]] Error describeLoss(std::string_view reason, Errc errc, LogLevel level) const;
  void loseAfter(const std::exception& error, std::uint64_t connection) noexcept;
  void loseAfterError(int error);
  void replaceSoon(const char* reason);
  void replace(std::string_view reason) noexcept;
  void dropConnection() noexcept;

  void onReply(const Reply& reply);
  void tellRefused(const std::string& channel, Errc errc, const std::string& text);
  void onTimer();
  void serveTimes();
  void armTimer();

  template <class F>
  void tell(F&& event) noexcept;
  void log(LogLevel level, std::string_view text) const noexcept {
    if (log_) {
      log_->write(level, text);
    }
  }

  const std::shared_ptr<Loop> loop_;
  const std::shared_ptr<const Logger> log_;
  const std::chrono::milliseconds redialDelay_;
  const std::chrono::milliseconds replyTimeout_;
  const Error undescribedLoss_{Errc::connectionFailed, "subscriber connection lost"};
  PubSubEvents* events_;
  SubscriptionBook book_;
  Timer timer_;
  Timer redial_;
  LoopTask flush_;
  Dialer dialer_;
  bool closed_ = false;
  bool dialing_ = false;
  bool outdated_ = false;  ///< the credentials have changed since the dial that is under way
  /// Where requests go since the dial that is under way has begun; null: where they went before.
  std::shared_ptr<const ServerSession> wanted_;

  std::unique_ptr<Stream> stream_;
  std::optional<Poll> poll_;
  bool pollingWrites_ = false;
  /// Counts connections, so that a loop over replies notices that an event ended its own.
  std::uint64_t connection_ = 0;
  SteadyClock::time_point upSince_{};
  bool answered_ = false;  ///< a request of this connection, and not with an error
  std::string node_;
  std::shared_ptr<const ServerSession> session_;
  std::optional<ReplyReader> reader_;
  std::array<char, kMessageReadSize> buffer_;
  std::string out_;
  std::size_t written_ = 0;
};

void PubSubLink::Impl::subscribe(std::string channel) {
  if (closed_) {
    return;
  }
  book_.subscribe(std::move(channel));
  scheduleFlush();
  connect();
}

void PubSubLink::Impl::unsubscribe(const std::string& channel) {
  book_.unsubscribe(channel, SteadyClock::now());
  scheduleFlush();
}

void PubSubLink::Impl::scheduleFlush() noexcept {
  if (book_.due()) {
    flush_.atPassEnd(shared_from_this());
  }
}

void PubSubLink::Impl::flush() noexcept {
  const std::uint64_t connection = connection_;
  try {
    sendDue();
  } catch (const std::exception& error) {
    loseAfter(error, connection);
  }
}

/// Sends what a whole pass of the loop has asked for.
void PubSubLink::Impl::sendDue() {
  book_.sendDue(SteadyClock::now(),
                [this](const std::vector<std::string_view>& words) { appendCommand(out_, words); });
  if (up() && writePending()) {
    armTimer();
  }
}

void PubSubLink::Impl::connect() noexcept {
  // Without a wanted channel there is no connection; the next subscribe() makes one.
  if (closed_ || up() || dialing_ || book_.wanted() == 0) {
    return;
  }
  try {
    dialer_.dial([weak = weak_from_this()](Result<Established> result) {
      if (const auto self = weak.lock()) {
        self->onDialled(std::move(result));
      }
    });
    dialing_ = true;
    wanted_.reset();
    redial_.disarm();
  } catch (const std::exception& error) {
    // A link that stops trying would be missing for good, whatever it was that was missing now.
    redial_.armAt(SteadyClock::now() + redialDelay_);
    tell([&] { log(LogLevel::warning, std::string("subscriber: ") + error.what()); });
  }
}

void PubSubLink::Impl::onDialled(Result<Established> result) noexcept {
  dialing_ = false;
  const bool outdated = std::exchange(outdated_, false);
  if (!result) {
    tell([&] { log(LogLevel::debug, std::string("subscriber: ") + result.error().what()); });
    tell([&] { events_->onDown(result.error()); });
    connect();
    return;
  }
  if (outdated) {
    dialer_.succeeded();
    connect();
    return;
  }
  if (const auto wanted = std::move(wanted_); wanted && !wanted->sameServer(*result->session)) {
    connect();
    return;
  }
  // Functions that were posted for the connection before must not find this one under its number.
  const std::uint64_t connection = ++connection_;
  try {
    open(*std::move(result));
  } catch (const std::exception& error) {
    loseAfter(error, connection);
  }
}

void PubSubLink::Impl::open(Established established) {
  upSince_ = SteadyClock::now();
  answered_ = false;
  stream_ = std::move(established.stream);
  session_ = established.session;
  node_ = session_->node;
  reader_.emplace();
  pollingWrites_ = false;
  poll_.emplace(*loop_, stream_->descriptor());
  poll_->start(UV_READABLE, [weak = weak_from_this()](int status, int) {
    if (const auto self = weak.lock()) {
      self->onReady(status);
    }
  });
  // From here on every wanted channel is due, also those that the connection before had confirmed.
  book_.begin(upSince_);
  scheduleFlush();
  armTimer();
  tell([&] { events_->onUp(); });
}

void PubSubLink::Impl::onReady(int status) {
  const std::uint64_t connection = connection_;
  try {
    if (!readAvailable()) {
      return;
    }
    if (status < 0) {
      // libuv has stopped watching the socket, so waiting on would be waiting for ever.
      lose("the socket failed");
      return;
    }
    if (!writePending()) {
      return;
    }
    armTimer();
  } catch (const std::exception& error) {
    loseAfter(error, connection);
  }
}

/// Returns false when the connection is gone.
bool PubSubLink::Impl::readAvailable() {
  const std::uint64_t connection = connection_;
  Reply reply;
  for (int i = 0;; ++i) {
    if (i == kReadsPerPass) {
      if (stream_->hasBufferedInput()) {
        // The TLS stream has decrypted input, which epoll does not report.
        loop_->post([weak = weak_from_this(), connection] {
          const auto self = weak.lock();
          if (self && self->connection_ == connection && self->up()) {
            self->onReady(0);
          }
        });
      }
      break;
    }
    const ssize_t count = stream_->read(buffer_.data(), buffer_.size(), false);
    // The server closes a subscriber that reads too slowly, or on CLIENT KILL.
    if (count == 0) {
      lose("the server closed the connection");
      return false;
    }
    if (count < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        break;
      }
      loseAfterError(errno);
      return false;
    }
    reader_->feed(buffer_.data(), static_cast<std::size_t>(count));
    while (true) {
      const ReplyReader::Next next = reader_->next(reply);
      if (next == ReplyReader::Next::needMore) {
        break;
      }
      if (next == ReplyReader::Next::protocolError) {
        lose(std::string("protocol error: ") + reader_->errorText(), Errc::protocolError);
        return false;
      }
      // Race: the event that this causes may end the connection; then the rest of the buffer is of
      // no use.
      onReply(reply);
      if (connection != connection_ || !up()) {
        // The event of this reply has closed the link, or the reply has ended the connection.
        return false;
      }
    }
    // The socket is empty most likely. If it is not, polling tells at once.
    if (static_cast<std::size_t>(count) < buffer_.size() && !stream_->hasBufferedInput()) {
      break;
    }
  }
  return true;
}

/// Returns false when the connection is gone.
bool PubSubLink::Impl::writePending() {
  while (written_ < out_.size()) {
    const ssize_t count = stream_->write(out_.data() + written_, out_.size() - written_);
    if (count >= 0) {
      written_ += static_cast<std::size_t>(count);
      // No room: the rest goes out when polling tells of some.
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (closedByPeer(errno)) {
      // Polling tells of the end at once, and what the server said before it is read first.
      break;
    } else {
      loseAfterError(errno);
      return false;
    }
  }
  const bool pending = written_ < out_.size();
  if (!pending) {
    out_.clear();
    written_ = 0;
  }
  const bool forRoom = pending && !stream_->writeAwaitsInput();
  if (forRoom != pollingWrites_) {
    pollingWrites_ = forRoom;
    poll_->setEvents(forRoom ? UV_READABLE | UV_WRITABLE : UV_READABLE);
  }
  return true;
}

void PubSubLink::Impl::follow(MasterWatch& watch) {
  watch.follow([weak = weak_from_this()](const ServerSession& master) {
    const auto self = weak.lock();
    if (!self || self->closed_) {
      return;
    }
    if (!self->up()) {
      self->dialer_.hurry();
    } else if (!self->session_->sameServer(master)) {
      self->replace("another server is the master now");
    }
  });
}

void PubSubLink::Impl::requestsGoTo(const std::shared_ptr<const ServerSession>& server) {
  if (up() && !session_->sameServer(*server)) {
    replaceSoon("requests go to another server now");
  }
  // One that is made now may have asked for the address before that was another.
  wanted_ = dialing_ ? server : nullptr;
}

void PubSubLink::Impl::dropConnection() noexcept {
  timer_.disarm();
  poll_.reset();
  stream_.reset();
  reader_.reset();
  out_.clear();
  written_ = 0;
  book_.end();
}

void PubSubLink::Impl::lose(std::string_view reason, Errc errc, LogLevel level) noexcept {
  // One that only confirms and closes is no better than one that only greets: a connection that has
  // lasted is no part of a storm.
  constexpr SteadyClock::duration kLasting = std::chrono::seconds(2);
  if (answered_ &&
      SteadyClock::now() - upSince_ > std::min<SteadyClock::duration>(redialDelay_, kLasting)) {
    dialer_.succeeded();
  }
  // Without memory nobody hears why, but of the loss, and the link connects all the same. Described
  // first, for the words may be those of what goes with the connection.
  Error error = undescribedLoss_;
  tell([&] { error = describeLoss(reason, errc, level); });
  // First the state, then the events: whoever hears of it may subscribe at once.
  ++connection_;
  dropConnection();
  tell([&] { events_->onDown(error); });
  connect();
}

Error PubSubLink::Impl::describeLoss(std::string_view reason, Errc errc, LogLevel level) const {
  const std::string why(reason);
  log(level, "subscriber connection to " + node_ + " lost: " + why);
  ErrorContext context;
  context.node = node_;
  return Error(errc, "subscriber connection lost: " + why, std::move(context));
}

void PubSubLink::Impl::loseAfterError(int error) {
  const StreamFailure* const why = stream_->failure();
  if (why != nullptr) {
    lose(why->text);
  } else {
    lose(std::generic_category().message(error));
  }
}

/// Ends a connection of which nothing is wrong.
void PubSubLink::Impl::replace(std::string_view reason) noexcept {
  if (answered_) {
    dialer_.succeeded();
  }
  lose(reason);
}

/// It cannot be known how far a function came that threw; a new connection starts from what is
/// wanted.
void PubSubLink::Impl::loseAfter(const std::exception& error, std::uint64_t connection) noexcept {
  // The function may have thrown after its connection had ended, when another one is there already.
  if (connection == connection_ && up()) {
    lose(error.what());
  }
}

void PubSubLink::Impl::renew() {
  if (!up()) {
    // One whose handshake is under way may have begun with those before.
    outdated_ = dialing_;
    return;
  }
  replaceSoon("replaced, because the credentials have changed");
}

/// Not from within the call that finds it out of date.
void PubSubLink::Impl::replaceSoon(const char* reason) {
  loop_->post([weak = weak_from_this(), connection = connection_, reason] {
    const auto self = weak.lock();
    // Race: the connection may have been replaced since this was posted, by one that is not.
    if (self && self->connection_ == connection && self->up()) {
      self->replace(reason);
    }
  });
}

/// Not from within the event that finds it of no use.
void PubSubLink::Impl::leave() {
  loop_->post([weak = weak_from_this(), connection = connection_] {
    const auto self = weak.lock();
    // Race: the connection may have been lost since this was posted.
    if (self && self->connection_ == connection && self->up()) {
      // The caller that left it has said why.
      self->lose("left for another", Errc::connectionFailed, LogLevel::debug);
    }
  });
}

void PubSubLink::Impl::close() noexcept {
  closed_ = true;
  ++connection_;
  dialing_ = false;
  redial_.disarm();
  dialer_.cancel();
  dropConnection();
  book_.clear();
}

void PubSubLink::Impl::onReply(const Reply& reply) {
  using Kind = SubscriptionBook::Meaning::Kind;
  const auto meaning = book_.take(reply, SteadyClock::now());
  answered_ = answered_ || meaning.answered;
  scheduleFlush();
  switch (meaning.kind) {
    case Kind::nothing:
      return;
    case Kind::message:
      tell([&] { events_->onMessage(*meaning.channel, reply.elements[2].text); });
      return;
    case Kind::subscribed:
      tell([&] { events_->onSubscribed(*meaning.channel); });
      return;
    case Kind::moved: {
      // The event may give the channel up, and the name with it.
      const std::string name = *meaning.channel;
      tell([&] { events_->onMoved(name); });
      return;
    }
    case Kind::refused:
      tellRefused(*meaning.channel, meaning.errc, reply.text);
      return;
    case Kind::broken:
      lose("the server said " + reply.text, meaning.errc);
      return;
  }
}

void PubSubLink::Impl::tellRefused(const std::string& channel, Errc errc, const std::string& text) {
  // The event may give the channel up, and the name with it.
  const std::string name = channel;
  ErrorContext context;
  context.node = node_;
  context.serverMessage = text;
  const Error error(errc,
                    errc == Errc::denied ? "the user may not subscribe to the channel"
                                         : "the server refused the subscription",
                    std::move(context));
  tell([&] { events_->onRefused(name, error); });
}

void PubSubLink::Impl::armTimer() {
  const auto due = book_.nextDue();
  // An earlier timer is left alone, for traffic only moves the deadlines back: when it expires
  // serveTimes() sees that nothing is due and sets it anew.
  if (due < timer_.due()) {
    timer_.armAt(due);
  }
}

void PubSubLink::Impl::onTimer() {
  const auto keep = shared_from_this();
  const std::uint64_t connection = connection_;
  try {
    serveTimes();
  } catch (const std::exception& error) {
    loseAfter(error, connection);
  }
}

void PubSubLink::Impl::serveTimes() {
  if (!up()) {
    return;
  }
  auto now = SteadyClock::now();
  if (book_.silent(now)) {
    // This process may have been the one that stood still, so replies that have come meanwhile are
    // read before the server is called silent.
    if (!readAvailable()) {
      return;
    }
    // Bytes to be written may have waited for what has just been read.
    if (!writePending()) {
      return;
    }
    if (book_.silent(SteadyClock::now())) {
      lose("no answer for " + std::to_string(replyTimeout_.count()) + " ms");
      return;
    }
    now = SteadyClock::now();
  }
  book_.retry(now);
  scheduleFlush();
  if (book_.idle(now)) {
    log(LogLevel::debug, "subscriber connection to " + node_ + " closed: no channels");
    // The next subscription is not to wait because there was none for long.
    if (answered_) {
      dialer_.succeeded();
    }
    ++connection_;
    dropConnection();
    return;
  }
  if (book_.pingDue(now)) {
    book_.sendPing(
        now, [this](const std::vector<std::string_view>& words) { appendCommand(out_, words); });
    if (!writePending()) {
      return;
    }
  }
  armTimer();
}

template <class F>
void PubSubLink::Impl::tell(F&& event) noexcept {
  if (closed_) {
    return;
  }
  try {
    event();
  } catch (const std::exception& error) {
    log(LogLevel::error, error.what());
  } catch (...) {
    log(LogLevel::error, "a subscription event threw an exception of unknown type");
  }
}

PubSubLink::PubSubLink(std::shared_ptr<Loop> loop,
                       LinkSettings settings,
                       ChannelKind kind,
                       PubSubEvents& events,
                       const std::shared_ptr<MasterWatch>& watch)
    : impl_(std::make_shared<Impl>(std::move(loop), std::move(settings), kind, events)) {
  if (watch) {
    impl_->follow(*watch);
  }
}

PubSubLink::~PubSubLink() {
  close();
}

void PubSubLink::subscribe(std::string channel) {
  impl_->subscribe(std::move(channel));
}

void PubSubLink::unsubscribe(const std::string& channel) {
  impl_->unsubscribe(channel);
}

void PubSubLink::renew() {
  impl_->renew();
}

void PubSubLink::requestsGoTo(const std::shared_ptr<const ServerSession>& server) {
  impl_->requestsGoTo(server);
}

void PubSubLink::leave() {
  impl_->leave();
}

void PubSubLink::close() noexcept {
  impl_->close();
}

bool PubSubLink::up() const noexcept {
  return impl_->up();
}

std::size_t PubSubLink::channels() const noexcept {
  return impl_->channels();
}

}  // namespace rlock::detail::net
