// SPDX-License-Identifier: Apache-2.0
#include "net/pubsub_link.hpp"

#include "net/codec.hpp"
#include <rlock/detail/base/reply.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rlock::detail::net {

using SteadyClock = std::chrono::steady_clock;

namespace {

/// One request names no more channels than this, and no more bytes of names.
constexpr std::size_t kBatchChannels = 128;
constexpr std::size_t kBatchBytes = std::size_t{32} << 10;
constexpr std::size_t kMessageReadSize = std::size_t{16} << 10;
/// How long to wait before a refused channel is asked for again: the rules that refuse it may be
/// changed at any time. Doubled by each further refusal.
constexpr std::chrono::milliseconds kRefusedPauseMin{1000};
constexpr std::chrono::milliseconds kRefusedPauseMax{30000};

}  // namespace

/// Per channel there is at most one unanswered request, so what is wanted and what the server has
/// can be compared whenever an answer comes, whatever was asked for in between.
class PubSubLink::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(std::shared_ptr<Loop> loop, LinkSettings settings, PubSubEvents& events)
      : loop_(std::move(loop)),
        log_(settings.log),
        replyTimeout_(settings.replyTimeout),
        heartbeatInterval_(settings.heartbeatInterval),
        idleLinger_(settings.idleLinger),
        retryDelayMin_(settings.reconnectDelayMin),
        retryDelayMax_(settings.reconnectDelayMax),
        events_(&events),
        timer_(*loop_, [this] { onTimer(); }),
        dialer_(*loop_, std::move(settings), false) {}

  void subscribe(std::string channel);
  void unsubscribe(const std::string& channel);
  void close() noexcept;
  [[nodiscard]] bool up() const noexcept { return stream_ != nullptr; }
  [[nodiscard]] std::size_t channels() const noexcept { return wantedCount_; }

 private:
  enum class State : std::uint8_t { none, subscribing, subscribed, unsubscribing };

  struct Channel {
    std::uint64_t command = 0;  ///< the unanswered request while subscribing or unsubscribing
    State state = State::none;
    bool wanted = false;
    bool dirty = false;                  ///< listed in dirty_ or retrying_
    bool again = false;                  ///< asked for since the last request went out
    bool alone = false;                  ///< was refused together with others
    std::chrono::milliseconds pause{0};  ///< before it was last asked for again after a refusal
  };
  using Channels = std::unordered_map<std::string, Channel>;
  /// References into an unordered_map stay valid while it grows.
  using Entry = Channels::value_type;

  struct Command {
    enum class Kind : std::uint8_t { subscribe, unsubscribe, ping };
    Kind kind = Kind::ping;
    std::vector<Entry*> channels{};
    std::size_t unanswered = 1;
  };

  // What is wanted.
  void markDirty(Entry& entry);
  void scheduleFlush();
  void flush();
  void sendDirty();
  void eraseIfUnused(Entry& entry);
  void forget(Entry& entry);

  // The connection.
  void connect();
  void onDialled(Result<Established> result);
  void open(Established established);
  void onReady(int status);
  bool readAvailable();
  bool writePending();
  void lose(const std::string& reason, Errc errc = Errc::connectionFailed);
  void loseAfter(const std::exception& error, std::uint64_t connection);
  void dropConnection() noexcept;

  // Requests and answers.
  void sendBatches(Command::Kind kind, const std::vector<Entry*>& entries);
  void sendCommand(Command::Kind kind, std::vector<Entry*> entries);
  void sendPing();
  void answered(std::uint64_t command);
  void onReply(Reply& reply);
  void onConfirmed(Command::Kind kind, const std::string& name);
  void onMessage(const Reply& reply);
  void onPong();
  void onErrorReply(const std::string& text);
  void refuse(Entry& entry, Errc errc, const std::string& text);
  void retryAt(Entry& entry, SteadyClock::time_point when);

  // Time.
  void onTimer();
  void serveTimes();
  void armTimer();
  [[nodiscard]] SteadyClock::time_point peerDeadline() const;

  template <class F>
  void tell(F&& event) noexcept;
  void log(LogLevel level, std::string_view text) const noexcept {
    if (log_) {
      log_->write(level, text);
    }
  }

  const std::shared_ptr<Loop> loop_;
  const std::shared_ptr<const Logger> log_;
  const std::chrono::milliseconds replyTimeout_;
  const std::chrono::milliseconds heartbeatInterval_;
  const std::chrono::milliseconds idleLinger_;
  const std::chrono::milliseconds retryDelayMin_;
  const std::chrono::milliseconds retryDelayMax_;
  PubSubEvents* events_;
  Timer timer_;
  Dialer dialer_;
  bool closed_ = false;
  bool dialing_ = false;
  bool flushScheduled_ = false;

  Channels channels_;
  std::size_t wantedCount_ = 0;
  std::vector<Entry*> dirty_;

  std::unique_ptr<Stream> stream_;
  std::optional<Poll> poll_;
  bool pollingWrites_ = false;
  /// Counts connections, so that a loop over replies notices that an event ended its own.
  std::uint64_t connection_ = 0;
  std::string node_;
  std::optional<ReplyReader> reader_;
  std::array<char, kMessageReadSize> buffer_;
  std::string out_;
  std::size_t written_ = 0;
  std::deque<Command> inFlight_;
  std::uint64_t firstCommand_ = 0;
  SteadyClock::time_point lastReceived_;
  SteadyClock::time_point lastProgress_;
  SteadyClock::time_point idleSince_;

  /// Channels whose request met a server that was busy or refused them, by when to ask again.
  std::multimap<SteadyClock::time_point, Entry*> retrying_;
  std::chrono::milliseconds retryDelay_{0};
};

// ------------------------------------------------------------------------------- what is wanted

void PubSubLink::Impl::subscribe(std::string channel) {
  if (closed_) {
    return;
  }
  Entry& entry = *channels_.try_emplace(std::move(channel)).first;
  if (!entry.second.wanted) {
    entry.second.wanted = true;
    ++wantedCount_;
  }
  entry.second.again =
      entry.second.state == State::subscribing || entry.second.state == State::subscribed;
  markDirty(entry);
  connect();
}

void PubSubLink::Impl::unsubscribe(const std::string& channel) {
  const auto found = channels_.find(channel);
  if (found == channels_.end() || !found->second.wanted) {
    return;
  }
  Entry& entry = *found;
  entry.second.wanted = false;
  entry.second.again = false;
  if (--wantedCount_ == 0) {
    idleSince_ = SteadyClock::now();
  }
  if (entry.second.state == State::subscribed) {
    markDirty(entry);
  } else {
    eraseIfUnused(entry);
  }
}

void PubSubLink::Impl::markDirty(Entry& entry) {
  if (!entry.second.dirty) {
    dirty_.push_back(&entry);
    entry.second.dirty = true;
  }
  scheduleFlush();
}

void PubSubLink::Impl::scheduleFlush() {
  if (!flushScheduled_) {
    loop_->atPassEnd([weak = weak_from_this()] {
      if (const auto self = weak.lock()) {
        self->flush();
      }
    });
    flushScheduled_ = true;
  }
}

void PubSubLink::Impl::eraseIfUnused(Entry& entry) {
  const Channel& channel = entry.second;
  if (!channel.wanted && !channel.dirty && channel.state == State::none) {
    channels_.erase(channels_.find(entry.first));
  }
}

void PubSubLink::Impl::flush() {
  flushScheduled_ = false;
  const std::uint64_t connection = connection_;
  try {
    sendDirty();
  } catch (const std::exception& error) {
    loseAfter(error, connection);
  }
}

/// What a whole pass of the loop has asked for.
void PubSubLink::Impl::sendDirty() {
  std::vector<Entry*> dirty;
  dirty.swap(dirty_);
  std::vector<Entry*> subscribing;
  std::vector<Entry*> subscribingAlone;
  std::vector<Entry*> unsubscribing;
  for (Entry* entry : dirty) {
    Channel& channel = entry->second;
    channel.dirty = false;
    if (!up()) {
      // The next connection looks at every channel.
      eraseIfUnused(*entry);
    } else if (channel.wanted && (channel.state == State::none ||
                                  (channel.state == State::subscribed && channel.again))) {
      channel.again = false;
      (channel.alone ? subscribingAlone : subscribing).push_back(entry);
    } else if (channel.state == State::none) {
      eraseIfUnused(*entry);
    } else if (channel.state == State::subscribed && !channel.wanted) {
      unsubscribing.push_back(entry);
    }
  }
  if (!up()) {
    return;
  }
  sendBatches(Command::Kind::unsubscribe, unsubscribing);
  sendBatches(Command::Kind::subscribe, subscribing);
  for (Entry* entry : subscribingAlone) {
    sendCommand(Command::Kind::subscribe, {entry});
  }
  if (writePending()) {
    armTimer();
  }
}

// -------------------------------------------------------------------------------- the connection

void PubSubLink::Impl::connect() {
  if (closed_ || up() || dialing_ || wantedCount_ == 0) {
    return;
  }
  dialing_ = true;
  dialer_.dial([weak = weak_from_this()](Result<Established> result) {
    if (const auto self = weak.lock()) {
      self->onDialled(std::move(result));
    }
  });
}

void PubSubLink::Impl::onDialled(Result<Established> result) {
  dialing_ = false;
  if (!result) {
    log(LogLevel::debug, std::string("subscriber: ") + result.error().what());
    tell([&] { events_->onDown(result.error()); });
    connect();
    return;
  }
  const std::uint64_t connection = ++connection_;
  try {
    open(*std::move(result));
  } catch (const std::exception& error) {
    loseAfter(error, connection);
  }
}

void PubSubLink::Impl::open(Established established) {
  stream_ = std::move(established.stream);
  node_ = established.session->node;
  reader_.emplace();
  lastReceived_ = lastProgress_ = idleSince_ = SteadyClock::now();
  retryDelay_ = std::chrono::milliseconds(0);
  pollingWrites_ = false;
  poll_.emplace(*loop_, stream_->descriptor());
  poll_->start(UV_READABLE, [weak = weak_from_this()](int status, int) {
    if (const auto self = weak.lock()) {
      self->onReady(status);
    }
  });
  for (Entry& entry : channels_) {
    markDirty(entry);
  }
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
        // Polling the socket would not tell.
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
    if (count == 0) {
      lose("the server closed the connection");
      return false;
    }
    if (count < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        break;
      }
      lose(std::generic_category().message(errno));
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
      // Bytes alone do not count: a peer that sends one now and then tells nobody anything.
      lastReceived_ = SteadyClock::now();
      onReply(reply);
      if (connection != connection_ || !up()) {
        return false;
      }
    }
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
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else {
      lose(std::generic_category().message(errno));
      return false;
    }
  }
  const bool pending = written_ < out_.size();
  if (!pending) {
    out_.clear();
    written_ = 0;
  }
  if (pending != pollingWrites_) {
    pollingWrites_ = pending;
    poll_->setEvents(pending ? UV_READABLE | UV_WRITABLE : UV_READABLE);
  }
  return true;
}

void PubSubLink::Impl::dropConnection() noexcept {
  timer_.disarm();
  poll_.reset();
  stream_.reset();
  reader_.reset();
  out_.clear();
  written_ = 0;
  inFlight_.clear();
  firstCommand_ = 0;
  retrying_.clear();
}

void PubSubLink::Impl::lose(const std::string& reason, Errc errc) {
  ++connection_;
  dropConnection();
  dirty_.clear();
  for (auto it = channels_.begin(); it != channels_.end();) {
    if (it->second.wanted) {
      it->second = Channel{.wanted = true};
      ++it;
    } else {
      it = channels_.erase(it);
    }
  }
  log(LogLevel::warning, "subscriber connection to " + node_ + " lost: " + reason);
  ErrorContext context;
  context.node = node_;
  const Error error(errc, "subscriber connection lost: " + reason, std::move(context));
  tell([&] { events_->onDown(error); });
  connect();
}

/// What was half done cannot be known; a new connection starts from what is wanted.
void PubSubLink::Impl::loseAfter(const std::exception& error, std::uint64_t connection) {
  if (connection == connection_ && up()) {
    lose(error.what());
  }
}

void PubSubLink::Impl::close() noexcept {
  closed_ = true;
  ++connection_;
  dialing_ = false;
  dialer_.cancel();
  dropConnection();
  dirty_.clear();
  channels_.clear();
  wantedCount_ = 0;
}

// --------------------------------------------------------------------------- requests and answers

void PubSubLink::Impl::sendBatches(Command::Kind kind, const std::vector<Entry*>& entries) {
  std::vector<Entry*> batch;
  std::size_t bytes = 0;
  for (Entry* entry : entries) {
    const std::size_t size = entry->first.size();
    if (!batch.empty() && (batch.size() == kBatchChannels || bytes + size > kBatchBytes)) {
      sendCommand(kind, std::exchange(batch, {}));
      bytes = 0;
    }
    batch.push_back(entry);
    bytes += size;
  }
  if (!batch.empty()) {
    sendCommand(kind, std::move(batch));
  }
}

void PubSubLink::Impl::sendCommand(Command::Kind kind, std::vector<Entry*> entries) {
  const bool subscribing = kind == Command::Kind::subscribe;
  std::vector<std::string_view> argv;
  argv.reserve(entries.size() + 1);
  argv.emplace_back(subscribing ? "SUBSCRIBE" : "UNSUBSCRIBE");
  for (Entry* entry : entries) {
    argv.emplace_back(entry->first);
  }
  const std::size_t count = entries.size();
  if (inFlight_.empty()) {
    lastProgress_ = SteadyClock::now();
  }
  inFlight_.push_back(Command{kind, std::move(entries), count});
  try {
    appendCommand(out_, argv);
  } catch (...) {
    inFlight_.pop_back();
    throw;
  }
  const std::uint64_t id = firstCommand_ + inFlight_.size() - 1;
  for (Entry* entry : inFlight_.back().channels) {
    entry->second.state = subscribing ? State::subscribing : State::unsubscribing;
    entry->second.command = id;
  }
}

void PubSubLink::Impl::sendPing() {
  const std::string_view ping = "PING";
  if (inFlight_.empty()) {
    lastProgress_ = SteadyClock::now();
  }
  appendCommand(out_, std::span(&ping, 1));
  inFlight_.push_back(Command{});
}

void PubSubLink::Impl::answered(std::uint64_t command) {
  const std::uint64_t index = command - firstCommand_;
  if (index >= inFlight_.size()) {
    return;
  }
  --inFlight_[static_cast<std::size_t>(index)].unanswered;
  while (!inFlight_.empty() && inFlight_.front().unanswered == 0) {
    inFlight_.pop_front();
    ++firstCommand_;
  }
  lastProgress_ = SteadyClock::now();
  retryDelay_ = std::chrono::milliseconds(0);
  dialer_.succeeded();
}

void PubSubLink::Impl::onReply(Reply& reply) {
  if (reply.isError()) {
    onErrorReply(reply.text);
    return;
  }
  if (reply.is("PONG")) {
    onPong();
    return;
  }
  if (!reply.isArray() || reply.elements.empty()) {
    return;
  }
  const Reply& kind = reply.elements.front();
  if (kind.is("pong")) {
    onPong();
    return;
  }
  if (reply.elements.size() != 3 || reply.elements[1].type != Reply::Type::string) {
    return;
  }
  if (kind.is("message")) {
    onMessage(reply);
  } else if (kind.is("subscribe")) {
    onConfirmed(Command::Kind::subscribe, reply.elements[1].text);
  } else if (kind.is("unsubscribe")) {
    onConfirmed(Command::Kind::unsubscribe, reply.elements[1].text);
  }
}

void PubSubLink::Impl::onMessage(const Reply& reply) {
  const std::string& channel = reply.elements[1].text;
  const auto found = channels_.find(channel);
  if (found != channels_.end() && found->second.wanted) {
    tell([&] { events_->onMessage(channel, reply.elements[2].text); });
  }
}

void PubSubLink::Impl::onConfirmed(Command::Kind kind, const std::string& name) {
  const auto found = channels_.find(name);
  if (found == channels_.end()) {
    return;
  }
  Entry& entry = *found;
  Channel& channel = entry.second;
  if (kind == Command::Kind::subscribe && channel.state == State::subscribing) {
    answered(channel.command);
    channel.state = State::subscribed;
    channel.alone = false;
    channel.pause = std::chrono::milliseconds(0);
    if (!channel.wanted || channel.again) {
      markDirty(entry);
      return;
    }
    tell([&] { events_->onSubscribed(name); });
  } else if (kind == Command::Kind::unsubscribe &&
             (channel.state == State::unsubscribing || channel.state == State::subscribed)) {
    if (channel.state == State::unsubscribing) {
      answered(channel.command);
    }
    channel.state = State::none;
    if (channel.wanted) {
      markDirty(entry);
    } else {
      eraseIfUnused(entry);
    }
  }
}

void PubSubLink::Impl::onPong() {
  for (std::size_t i = 0; i < inFlight_.size(); ++i) {
    if (inFlight_[i].kind == Command::Kind::ping && inFlight_[i].unanswered > 0) {
      answered(firstCommand_ + i);
      return;
    }
  }
}

/// The server answers in order, and everything before the oldest unanswered request has been
/// confirmed: the error is that request's.
void PubSubLink::Impl::onErrorReply(const std::string& text) {
  const std::string_view code = firstWord(text);
  if (inFlight_.empty() || code == "NOAUTH") {
    lose("the server said " + text,
         code == "NOAUTH" ? Errc::authenticationFailed : Errc::connectionFailed);
    return;
  }
  const Command command = std::move(inFlight_.front());
  inFlight_.pop_front();
  ++firstCommand_;
  lastProgress_ = SteadyClock::now();
  if (command.kind == Command::Kind::ping) {
    return;
  }
  for (Entry* entry : command.channels) {
    entry->second.state = State::none;
  }
  if (command.kind == Command::Kind::unsubscribe) {
    for (Entry* entry : command.channels) {
      // The server goes on sending; what is not wanted is dropped on arrival.
      entry->second.wanted ? markDirty(*entry) : eraseIfUnused(*entry);
    }
    return;
  }
  if (code == "BUSY" || code == "LOADING" || code == "MASTERDOWN" || code == "TRYAGAIN") {
    retryDelay_ = std::clamp(retryDelay_ * 2, retryDelayMin_, retryDelayMax_);
    const auto when = SteadyClock::now() + retryDelay_;
    for (Entry* entry : command.channels) {
      retryAt(*entry, when);
    }
    return;
  }
  if (command.channels.size() == 1) {
    refuse(*command.channels.front(), code == "NOPERM" ? Errc::denied : Errc::serverError, text);
    return;
  }
  // One of them spoils the request for all, and the answer does not say which.
  for (Entry* entry : command.channels) {
    entry->second.alone = true;
    entry->second.wanted ? markDirty(*entry) : eraseIfUnused(*entry);
  }
}

void PubSubLink::Impl::retryAt(Entry& entry, SteadyClock::time_point when) {
  if (!entry.second.dirty) {
    retrying_.emplace(when, &entry);
    entry.second.dirty = true;
  }
}

void PubSubLink::Impl::refuse(Entry& entry, Errc errc, const std::string& text) {
  if (!entry.second.wanted) {
    eraseIfUnused(entry);
    return;
  }
  entry.second.again = false;
  entry.second.pause = std::clamp(entry.second.pause * 2, kRefusedPauseMin, kRefusedPauseMax);
  retryAt(entry, SteadyClock::now() + entry.second.pause);
  const std::string channel = entry.first;
  ErrorContext context;
  context.node = node_;
  context.serverMessage = text;
  const Error error(errc,
                    errc == Errc::denied ? "the user may not subscribe to the channel"
                                         : "the server refused the subscription",
                    std::move(context));
  tell([&] { events_->onRefused(channel, error); });
}

// ------------------------------------------------------------------------------------------ time

SteadyClock::time_point PubSubLink::Impl::peerDeadline() const {
  // Messages prove that the peer lives, but not that it still hears us.
  constexpr int kPatience = 2;
  return std::min(std::max(lastReceived_, lastProgress_) + replyTimeout_,
                  lastProgress_ + kPatience * replyTimeout_);
}

void PubSubLink::Impl::armTimer() {
  SteadyClock::time_point due =
      retrying_.empty() ? SteadyClock::time_point::max() : retrying_.begin()->first;
  if (!inFlight_.empty()) {
    due = std::min(due, peerDeadline());
  } else {
    due = std::min(due, lastReceived_ + heartbeatInterval_);
    if (channels_.empty()) {
      due = std::min(due, idleSince_ + idleLinger_);
    }
  }
  // Traffic only moves the deadlines back, so an earlier expiry finds out by itself.
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
  if (!inFlight_.empty() && now >= peerDeadline()) {
    // This process may have been the one that slept: what has come meanwhile counts.
    if (!readAvailable()) {
      return;
    }
    if (!inFlight_.empty() && SteadyClock::now() >= peerDeadline()) {
      lose("no answer for " + std::to_string(replyTimeout_.count()) + " ms");
      return;
    }
    now = SteadyClock::now();
  }
  while (!retrying_.empty() && now >= retrying_.begin()->first) {
    Entry& entry = *retrying_.begin()->second;
    retrying_.erase(retrying_.begin());
    entry.second.dirty = false;
    markDirty(entry);
  }
  if (inFlight_.empty() && channels_.empty() && now >= idleSince_ + idleLinger_) {
    log(LogLevel::debug, "subscriber connection to " + node_ + " closed: no channels");
    ++connection_;
    dropConnection();
    return;
  }
  if (inFlight_.empty() && now >= lastReceived_ + heartbeatInterval_) {
    sendPing();
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

// ------------------------------------------------------------------------------------ PubSubLink

PubSubLink::PubSubLink(std::shared_ptr<Loop> loop, LinkSettings settings, PubSubEvents& events)
    : impl_(std::make_shared<Impl>(std::move(loop), std::move(settings), events)) {}

PubSubLink::~PubSubLink() {
  close();
}

void PubSubLink::subscribe(std::string channel) {
  impl_->subscribe(std::move(channel));
}

void PubSubLink::unsubscribe(const std::string& channel) {
  impl_->unsubscribe(channel);
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
