// SPDX-License-Identifier: Apache-2.0

// CommandLink: the life of the connection for commands, on the loop thread. It dials, begins and
// dismantles connections, dials again with a back-off, sends heartbeats, watches for replies that
// do not come, and completes requests that no thread awaits. Requests themselves go past it:
// submit() and await() are SharedConnection's, on the callers' threads.

#include "net/command_link.hpp"

#include "net/handshake.hpp"
#include "net/master_watch.hpp"
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/net/pending_requests.hpp>

#include <array>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail::net {

namespace {

// The loop completes no more requests, nor for longer, before it looks at timers and sockets again.
constexpr int kCompletionsPerPass = 256;
constexpr std::chrono::milliseconds kCompletingPerPass{5};

}  // namespace

/// A heartbeat. Any error is an answer to it; another answer is that to another request.
class CommandLink::Ping final : public LoneRequest {
 public:
  /// @param connection  outlives what it completes
  explicit Ping(SharedConnection& connection) noexcept
      : LoneRequest(Purpose::upkeep), connection_(connection) {}

 private:
  void completed() noexcept override {
    if (delivery() == Delivery::replied && !reply().isError() && !reply().is("PONG")) {
      connection_.abandon(
          submittedAt(), Errc::protocolError, "the server sent what is no reply to a PING");
    }
  }

  SharedConnection& connection_;
};

/// Other credentials for the connection that it goes out on.
class CommandLink::Auth final : public LoneRequest {
 public:
  Auth(Credentials credentials, std::string node)
      : LoneRequest(Purpose::upkeep),
        credentials_(std::move(credentials)),
        node_(std::move(node)) {}

  /// Before the loop goes on: the answer comes on the loop.
  void onAnswer(UniqueFunction<void(Result<void>)> done) noexcept { done_ = std::move(done); }

  [[nodiscard]] std::vector<std::string_view> argv() const {
    if (credentials_.username.empty()) {
      return {"AUTH", credentials_.password};
    }
    return {"AUTH", credentials_.username, credentials_.password};
  }

 private:
  void completed() noexcept override {
    auto done = std::exchange(done_, nullptr);
    std::optional<Error> refusal;
    // Lost with its connection, it is not missed: the next one begins with the credentials.
    if (delivery() == Delivery::replied && reply().isError()) {
      try {
        refusal = describe();
      } catch (const std::bad_alloc&) {
        refusal = noMemory();
      }
    }
    done(refusal ? Result<void>(*refusal) : Result<void>());
  }

  [[nodiscard]] Error describe() {
    const ConnectFailure failure = classifyAuth(reply().text, credentials_);
    ErrorContext context;
    context.node = node_;
    context.serverMessage = failure.serverMessage;
    return Error(failure.errc, failure.reason, std::move(context));
  }

  const Credentials credentials_;
  const std::string node_;
  UniqueFunction<void(Result<void>)> done_;
};

CommandLink::CommandLink(std::shared_ptr<Loop> loop,
                         LinkSettings settings,
                         LinkEvents& events,
                         std::chrono::microseconds spin,
                         std::shared_ptr<MasterWatch> watch)
    : loop_(std::move(loop)),
      settings_(std::move(settings)),
      events_(events),
      watch_(std::move(watch)),
      connection_(settings_.replyTimeout, spin, [this] { wakeLoop(); }),
      dialer_(*loop_, settings_, true),
      work_(*loop_, [this] { work(); }),
      flush_(*loop_, [this] { flushAtPassEnd(); }),
      redial_(*loop_, [this] { dial(); }),
      heartbeat_(*loop_, [this] { heartbeat(); }),
      stall_(*loop_, [this] { checkStall(); }) {
  noMemory();
}

CommandLink::~CommandLink() = default;

void CommandLink::open() {
  dial();
}

void CommandLink::watchMaster() {
  if (watch_ && !watching_ && !closing_) {
    watch_->follow([weak = weak_from_this()](const ServerSession& master) {
      if (const auto self = weak.lock()) {
        self->masterIs(master);
      }
    });
    watch_->open();
    watching_ = true;
  }
}

/// A master that is frozen, or cut off from those who have chosen another, keeps its connections.
void CommandLink::masterIs(const ServerSession& master) noexcept {
  if (!connection_.up()) {
    dialer_.hurry();
  } else if (!session_->sameServer(master)) {
    connection_.abandon(Clock::now(), Errc::connectionFailed, "another server is the master now");
  }
}

void CommandLink::dial() noexcept {
  credentialsChanged_ = false;
  try {
    watchMaster();
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
    // A link that stops trying would be missing for good, whatever it was that was missing now.
    redial_.armAt(Clock::now() + settings_.reconnectDelayMax);
    tell([&] { events_.onDown(Error(Errc::connectionFailed, error.what())); });
  }
}

void CommandLink::established(Established established) noexcept {
  const auto session = established.session;
  try {
    connection_.start(*loop_, std::move(established), [this](int, int) { onPollable(); });
  } catch (const std::exception& error) {
    // There was no memory, or no descriptor, to watch the socket. The new connection is dropped.
    dial();
    tell([&] { events_.onDown(Error(Errc::connectionFailed, error.what())); });
    return;
  }
  session_ = session;
  connections_.fetch_add(1, std::memory_order_relaxed);
  answeredAtHeartbeat_ = 0;
  heartbeat_.armAt(Clock::now() + settings_.heartbeatInterval);
  tell([&] { events_.onUp(session); });
  if (std::exchange(credentialsChanged_, false)) {
    // Its handshake may have begun with those before.
    tell([&] {
      // Not of this link: the answer may outlive it.
      authenticate([log = settings_.log](const Result<void>& result) {
        if (!result.has_value() && log) {
          log->write(LogLevel::warning, result.error().what());
        }
      });
    });
  }
  // One that was left at once, because it leads to another server than was wanted, is no news.
  if (watch_ && !closing_ && connection_.up()) {
    tell([&] { watch_->tell(*session); });
  }
}

void CommandLink::close() noexcept {
  closing_ = true;
  // Others may still follow it.
  if (std::exchange(watching_, false)) {
    watch_->close();
  }
  dialer_.cancel();
  redial_.disarm();
  heartbeat_.disarm();
  stall_.disarm();
  connection_.close();
  tearDown();
}

bool CommandLink::submit(Request& request, std::span<const std::string_view> argv, Mode mode) {
  const bool onLoop = mode == Mode::background && loop_->onLoopThread();
  if (!connection_.submit(request, argv, mode, onLoop)) {
    return false;
  }
  commands_.fetch_add(1, std::memory_order_relaxed);
  if (onLoop) {
    flush_.atPassEnd(shared_from_this());
  }
  return true;
}

bool CommandLink::submitGroup(std::span<const Part> group) {
  if (!connection_.submitGroup(group)) {
    return false;
  }
  commands_.fetch_add(group.size(), std::memory_order_relaxed);
  flush_.atPassEnd(shared_from_this());
  return true;
}

void CommandLink::authenticate(UniqueFunction<void(Result<void>)> done) {
  std::optional<Error> failure;
  try {
    Credentials credentials = currentCredentials(settings_);
    const bool empty = credentials.username.empty() && credentials.password.empty();
    const auto auth = makeIntrusive<Auth>(
        std::move(credentials), session_ ? session_->node : toString(settings_.endpoints.front()));
    // Without a connection the next one begins with the credentials, unless it is being made now.
    if (!empty && submit(*auth, auth->argv(), Mode::background)) {
      auth->onAnswer(std::move(done));
      return;
    }
    credentialsChanged_ = !connection_.up();
  } catch (const Error& error) {
    failure = error;
  } catch (const std::bad_alloc&) {
    failure = noMemory();
  }
  done(failure ? Result<void>(*failure) : Result<void>());
}

void CommandLink::flushAtPassEnd() noexcept {
  watchForStall(connection_.flush());
}

/// The timer runs only while requests are pending that no thread awaits, because a waiting thread
/// watches for itself.
void CommandLink::watchForStall(Clock::time_point due) noexcept {
  if (due != Clock::time_point::max() && !stall_.armed()) {
    stall_.armAt(due);
  }
}

void CommandLink::onPollable() noexcept {
  const auto self = shared_from_this();
  if (connection_.serve()) {
    runCompleted();
  }
}

/// Does what other threads have left to the loop.
void CommandLink::work() noexcept {
  tearDown();
  watchForStall(connection_.maintain());
  runCompleted();
}

void CommandLink::runCompleted() noexcept {
  connection_.takeCompleted(running_);
  const auto end = Clock::now() + kCompletingPerPass;
  for (int count = 0; !running_.empty(); ++count) {
    // The loop of a closed link may take no more work.
    const auto now = Clock::now();
    if (!closing_ && (count >= kCompletionsPerPass || now >= end)) {
      wakeLoop();
      return;
    }
    const RequestPtr request = running_.pop();
    // The loop may have had other things to do since the reply came.
    request->setAnsweredAt(now);
    PendingRequests::complete(*request);
  }
}

void CommandLink::tearDown() noexcept {
  auto remains = connection_.dismantle();
  if (!remains) {
    return;
  }
  heartbeat_.disarm();
  stall_.disarm();
  if (closing_) {
    return;
  }
  // A connection that has lasted is no part of a storm, whatever it was used for.
  if (remains->useful || Clock::now() - remains->upSince > settings_.reconnectDelayMax) {
    dialer_.succeeded();
  }
  const SharedConnection::Failure& failure = remains->failure;
  if (failure.errc == Errc::readOnly) {
    // This server takes no writes: with several addresses another one is tried first.
    dialer_.preferOthers();
  }
  std::optional<Error> error;
  // Without memory nobody hears why, but the link dials all the same.
  tell([&] { error = describe(failure, remains->session->node); });
  // After its words were copied.
  remains->stream.reset();
  dial();
  if (error) {
    tell([&] { events_.onDown(*error); });
  }
}

Error CommandLink::describe(const SharedConnection::Failure& why, const std::string& node) {
  std::string text(why.what);
  if (*why.detail != '\0') {
    text.append(": ").append(why.detail);
  }
  if (why.error != 0) {
    text.append(": ").append(std::strerror(why.error));
  }
  ErrorContext context;
  context.node = node;
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
  // Also where requests come often enough that no PING goes out.
  connection_.checkIdle();
  const auto answered = connection_.answered();
  if (!answered) {
    return;
  }
  // Any reply since the last heartbeat shows that the server lives, so a busy connection sends no
  // PING.
  heartbeat_.armAt(Clock::now() + settings_.heartbeatInterval);
  if (*answered == std::exchange(answeredAtHeartbeat_, *answered)) {
    constexpr std::array<std::string_view, 1> kPing{"PING"};
    const auto ping = makeIntrusive<Ping>(connection_);
    submit(*ping, kPing, Mode::background);
  }
}

void CommandLink::checkStall() noexcept {
  stall_.armAt(connection_.checkStall(Clock::now(), SharedConnection::Watcher::loop));
}

}  // namespace rlock::detail::net
