// SPDX-License-Identifier: Apache-2.0
#include "support/tcp_proxy.hpp"

#include "support/eventually.hpp"
#include "support/free_port.hpp"
#include "support/redis_server.hpp"
#include "support/resp_scan.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <deque>
#include <fcntl.h>
#include <mutex>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <poll.h>
#include <random>
#include <set>
#include <stdexcept>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

namespace rlock::test {

using Clock = std::chrono::steady_clock;

struct TcpProxy::Rule::State {
  Matcher matcher;
  Action action;
  RuleOptions options;
  /// Used on the proxy's thread only.
  std::size_t matched = 0;
  std::size_t claimed = 0;

  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  std::size_t hits = 0;

  void hit() {
    hit([] {});
  }
  /// `effect` and the count become visible together.
  template <class Effect>
  void hit(Effect&& effect) {
    {
      const std::lock_guard guard(mutex);
      effect();
      ++hits;
    }
    changed.notify_all();
  }
};

namespace {

constexpr std::size_t kReadSize = std::size_t{64} * 1024;
/// Per direction and connection; beyond it the proxy stops reading, so that a client of a frozen
/// server meets a full send buffer as it would without the proxy.
constexpr std::size_t kQueueLimit = std::size_t{4} * 1024 * 1024;
constexpr auto kDrainTime = std::chrono::seconds(5);

char upperCase(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

std::string upperCase(std::string_view text) {
  std::string upper(text);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](char c) { return upperCase(c); });
  return upper;
}

bool equalsIgnoringCase(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
           return upperCase(x) == upperCase(y);
         });
}

void closeWithReset(int fd) {
  const linger now{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  ::close(fd);
}

void sendPromptly(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

const sockaddr* generic(const sockaddr_in* address) {
  return static_cast<const sockaddr*>(static_cast<const void*>(address));
}

}  // namespace

class TcpProxy::Impl {
 public:
  Impl(PortReservation reservation, std::uint16_t targetPort, std::string targetHost);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  /// Runs `task` on the proxy's thread and returns when it is done.
  void call(const std::function<void()>& task);

  enum Way : std::size_t { up = 0, down = 1 };
  using RuleState = Rule::State;

  struct Segment {
    enum class Kind { bytes, end, cut };
    Kind kind = Kind::bytes;
    std::string bytes;
    std::size_t sent = 0;
    Clock::time_point notBefore;
    bool stalled = false;
    CutKind cut = CutKind::reset;
    std::shared_ptr<RuleState> hit;
  };

  /// One direction of a connection.
  struct Pipe {
    std::string partial;  ///< received, not yet a complete request or reply
    bool opaque = false;
    bool inputEnded = false;
    std::deque<Segment> queue;  ///< in order: nothing overtakes what was queued before
    std::size_t queuedBytes = 0;
    Clock::time_point throttledUntil;
    std::size_t throttleBudget = 0;
    std::optional<std::size_t> cutAfter;
    CutKind cutKind = CutKind::reset;
    bool outputBlocked = false;
  };

  struct PendingReply {
    std::shared_ptr<RuleState> rule;
    Action::Kind action = Action::Kind::pass;
    bool first = true;       ///< of several replies to one request
    bool synthetic = false;  ///< made by the proxy, see `text`
    std::string text;
  };

  struct Connection {
    ConnectionInfo info;
    int client = -1;
    int server = -1;
    bool connecting = false;
    bool serverGone = false;
    bool dead = false;
    bool losesRequests = false;  ///< one was dropped
    std::array<Pipe, 2> pipes;
    std::deque<PendingReply> pending;
    std::array<std::set<std::string>, 3> subscriptions;  ///< channels, patterns, shard channels
    std::int64_t confirmedSubscriptions = 0;
    std::int64_t confirmedShardSubscriptions = 0;
  };

  struct Draining {
    int fd;
    Clock::time_point until;
  };

  struct DelaySetting {
    Milliseconds delay{0};
    Milliseconds jitter{0};
    Filter filter;
  };
  struct ThrottleSetting {
    std::size_t bytes = 0;
    Milliseconds interval{0};
    Filter filter;
  };
  struct CutArm {
    std::size_t after = 0;
    CutKind kind = CutKind::reset;
  };

  // Everything below runs on the proxy's thread.
  void loop();
  void runTasks();
  void acceptAll();
  void connectUpstream(Connection& connection);
  void finishConnecting(Connection& connection);
  void readFrom(Connection& connection, Way way);
  void inputEnded(Connection& connection, Way way, bool byReset);
  void processRequests(Connection& connection);
  void handleRequest(Connection& connection, std::string bytes, const Argv& argv);
  std::size_t repliesTo(Connection& connection, const Argv& argv);
  std::shared_ptr<RuleState> ruleFor(const Connection& connection, const Argv& argv);
  void processReplies(Connection& connection);
  void handleReply(Connection& connection,
                   std::string bytes,
                   const std::vector<std::string>& parts);
  void flushSynthetic(Connection& connection);
  void flushForCut(Connection& connection, Way way);
  Segment& queueSegment(Connection& connection,
                        Way way,
                        Segment segment,
                        Milliseconds extraDelay = Milliseconds(0));
  Segment& queueBytes(Connection& connection,
                      Way way,
                      std::string bytes,
                      Milliseconds extraDelay = Milliseconds(0));
  void queueCut(Connection& connection, Way way, CutKind kind, std::shared_ptr<RuleState> hit);
  void pump(Connection& connection, Way way);
  void outputFailed(Connection& connection, Way way);
  void cut(Connection& connection, CutKind kind);
  void closeOrderly(int& fd);
  void armCut(Connection& connection, Way way, const CutArm& arm);
  bool blackHoled(const Connection& connection, Way way) const;
  void wakeAt(Clock::time_point when) { nextWake_ = std::min(nextWake_, when); }
  void setRefusing(bool refuse);
  void releaseStalled(bool alsoDelayed);
  void drain(Draining& draining);
  void rememberCommand(const Argv& argv);

  std::array<DelaySetting, 2> delays_;
  std::array<ThrottleSetting, 2> throttles_;
  std::array<bool, 2> blackHole_{false, false};
  Filter blackHoleFilter_;
  std::array<std::optional<CutArm>, 2> cutNext_;
  std::vector<std::shared_ptr<RuleState>> rules_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<Draining> draining_;
  bool refusing_ = false;
  bool recording_ = false;
  std::string targetHost_;
  std::uint16_t targetPort_;
  Stats stats_;
  Clock::time_point nextWake_;
  std::minstd_rand random_{1};

  int listener_ = -1;
  std::uint16_t port_ = 0;

  /// Guards `accepted_` and `recorded_`, which other threads read and wait for.
  mutable std::mutex monitorMutex_;
  mutable std::condition_variable monitorChanged_;
  std::uint64_t accepted_ = 0;
  std::vector<Argv> recorded_;

 private:
  struct Task {
    const std::function<void()>* run;
    bool done = false;
    std::exception_ptr failure;
  };

  std::mutex taskMutex_;
  std::condition_variable taskDone_;
  std::vector<Task*> tasks_;
  int wake_ = -1;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

TcpProxy::Impl::Impl(PortReservation reservation, std::uint16_t targetPort, std::string targetHost)
    : targetHost_(std::move(targetHost)), targetPort_(targetPort) {
  port_ = reservation.port();
  listener_ = reservation.release();
  ::fcntl(listener_, F_SETFL, O_NONBLOCK);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0 || ::listen(listener_, SOMAXCONN) != 0) {
    const int error = errno;
    ::close(listener_);
    throw std::system_error(error, std::generic_category(), "proxy cannot listen");
  }
  thread_ = std::thread([this] { loop(); });
}

TcpProxy::Impl::~Impl() {
  stop_ = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
  thread_.join();
  for (const auto& connection : connections_) {
    closeWithReset(connection->client);
    if (connection->server >= 0) {
      ::close(connection->server);
    }
  }
  for (const Draining& draining : draining_) {
    ::close(draining.fd);
  }
  ::close(listener_);
  ::close(wake_);
}

void TcpProxy::Impl::call(const std::function<void()>& task) {
  if (std::this_thread::get_id() == thread_.get_id()) {
    throw std::logic_error("a matcher or filter must not call the proxy");
  }
  Task entry{&task, false, nullptr};
  std::unique_lock lock(taskMutex_);
  tasks_.push_back(&entry);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
  taskDone_.wait(lock, [&] { return entry.done; });
  if (entry.failure) {
    std::rethrow_exception(entry.failure);
  }
}

void TcpProxy::Impl::runTasks() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake_, &count, sizeof count);
  // For the caller a connection exists when its connect() has returned.
  acceptAll();
  const std::lock_guard guard(taskMutex_);
  for (Task* task : tasks_) {
    try {
      (*task->run)();
    } catch (...) {
      task->failure = std::current_exception();
    }
    task->done = true;
  }
  tasks_.clear();
  taskDone_.notify_all();
}

void TcpProxy::Impl::loop() {
  enum class Side { client, server, draining };
  struct Watched {
    Side side;
    std::size_t index;
  };
  std::vector<pollfd> entries;
  std::vector<Watched> watched;
  while (!stop_) {
    nextWake_ = Clock::time_point::max();
    for (const auto& connection : connections_) {
      if (connection->server < 0 && !connection->serverGone && !connection->dead &&
          !blackHoled(*connection, up)) {
        connectUpstream(*connection);
      }
      pump(*connection, up);
      pump(*connection, down);
    }
    std::erase_if(connections_, [](const auto& connection) { return connection->dead; });
    std::erase_if(draining_, [](const Draining& draining) { return draining.fd < 0; });

    entries.assign({{wake_, POLLIN, 0}, {refusing_ ? -1 : listener_, POLLIN, 0}});
    watched.assign(2, {});
    const auto watch = [&](int fd, bool input, bool output, Watched what) {
      // A descriptor without interest must stay out: poll() reports its hang-up all the time.
      if (fd >= 0 && (input || output)) {
        entries.push_back(
            {fd, static_cast<short>((input ? POLLIN : 0) | (output ? POLLOUT : 0)), 0});
        watched.push_back(what);
      }
    };
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      const Connection& connection = *connections_[i];
      const auto wantsInput = [&](Way way) {
        return !connection.pipes[way].inputEnded &&
               connection.pipes[way].queuedBytes < kQueueLimit && !blackHoled(connection, way);
      };
      watch(connection.client,
            wantsInput(up),
            connection.pipes[down].outputBlocked,
            {Side::client, i});
      watch(connection.server,
            !connection.connecting && wantsInput(down),
            connection.connecting || connection.pipes[up].outputBlocked,
            {Side::server, i});
    }
    for (std::size_t i = 0; i < draining_.size(); ++i) {
      watch(draining_[i].fd, true, false, {Side::draining, i});
      wakeAt(draining_[i].until);
    }

    timespec timeout{};
    const bool bounded = nextWake_ != Clock::time_point::max();
    if (bounded) {
      const auto left = std::max(Clock::duration(0), nextWake_ - Clock::now());
      const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
      timeout.tv_sec = seconds.count();
      timeout.tv_nsec = std::chrono::nanoseconds(left - seconds).count();
    }
    ::ppoll(entries.data(), entries.size(), bounded ? &timeout : nullptr, nullptr);

    // Tasks first: what they set applies to the bytes that wait to be read now.
    if (entries[0].revents != 0) {
      runTasks();
    }
    if (entries[1].revents != 0) {
      acceptAll();
    }
    for (std::size_t e = 2; e < entries.size(); ++e) {
      if (entries[e].revents == 0) {
        continue;
      }
      if (watched[e].side == Side::draining) {
        drain(draining_[watched[e].index]);
        continue;
      }
      Connection& connection = *connections_[watched[e].index];
      if (connection.dead) {
        continue;
      }
      const Way in = watched[e].side == Side::client ? up : down;
      const Way out = watched[e].side == Side::client ? down : up;
      if (connection.connecting && watched[e].side == Side::server) {
        finishConnecting(connection);
        continue;
      }
      connection.pipes[out].outputBlocked = false;
      if ((entries[e].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && !blackHoled(connection, in)) {
        readFrom(connection, in);
      }
    }
    for (Draining& draining : draining_) {
      if (draining.fd >= 0 && Clock::now() >= draining.until) {
        ::close(std::exchange(draining.fd, -1));
      }
    }
  }
}

void TcpProxy::Impl::drain(Draining& draining) {
  char chunk[4096];
  while (draining.fd >= 0) {
    const ssize_t n = ::recv(draining.fd, chunk, sizeof chunk, 0);
    if (n > 0 || (n < 0 && errno == EINTR)) {
      continue;
    }
    if (n < 0 && errno == EAGAIN) {
      return;
    }
    ::close(std::exchange(draining.fd, -1));
  }
}

void TcpProxy::Impl::closeOrderly(int& fd) {
  if (fd < 0) {
    return;
  }
  // Closing a socket with unread input resets the connection, so the input is read to its end.
  ::shutdown(fd, SHUT_WR);
  draining_.push_back({std::exchange(fd, -1), Clock::now() + kDrainTime});
  drain(draining_.back());
}

void TcpProxy::Impl::acceptAll() {
  while (!refusing_) {
    sockaddr_in from{};
    socklen_t length = sizeof from;
    const int fd = ::accept4(
        listener_, reinterpret_cast<sockaddr*>(&from), &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      return;
    }
    sendPromptly(fd);
    auto connection = std::make_unique<Connection>();
    connection->client = fd;
    connection->info.id = ++stats_.accepted;
    std::array<char, INET_ADDRSTRLEN> peer{};
    if (::inet_ntop(AF_INET, &from.sin_addr, peer.data(), peer.size()) != nullptr) {
      connection->info.peer = peer.data();
    }
    for (const Way way : {up, down}) {
      if (cutNext_[way]) {
        armCut(*connection, way, *std::exchange(cutNext_[way], std::nullopt));
      }
    }
    connections_.push_back(std::move(connection));
    {
      const std::lock_guard guard(monitorMutex_);
      accepted_ = stats_.accepted;
    }
    monitorChanged_.notify_all();
  }
}

void TcpProxy::Impl::connectUpstream(Connection& connection) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(targetPort_);
  const bool literal = ::inet_pton(AF_INET, targetHost_.c_str(), &address.sin_addr) == 1;
  connection.server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (connection.server >= 0 && literal) {
    sendPromptly(connection.server);
    if (::connect(connection.server, generic(&address), sizeof address) == 0) {
      return;
    }
    if (errno == EINPROGRESS) {
      connection.connecting = true;
      return;
    }
  }
  ++stats_.targetFailed;
  cut(connection, CutKind::reset);
}

void TcpProxy::Impl::finishConnecting(Connection& connection) {
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(connection.server, SOL_SOCKET, SO_ERROR, &error, &length);
  connection.connecting = false;
  if (error != 0) {
    ++stats_.targetFailed;
    cut(connection, CutKind::reset);
  }
}

void TcpProxy::Impl::readFrom(Connection& connection, Way way) {
  const int fd = way == up ? connection.client : connection.server;
  Pipe& pipe = connection.pipes[way];
  if (fd < 0 || pipe.inputEnded) {
    return;
  }
  static thread_local std::array<char, kReadSize> chunk;
  const ssize_t n = ::recv(fd, chunk.data(), chunk.size(), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (n <= 0) {
    inputEnded(connection, way, n < 0);
    return;
  }
  const auto size = static_cast<std::size_t>(n);
  (way == up ? connection.info.clientBytes : connection.info.serverBytes) += size;
  (way == up ? stats_.clientBytes : stats_.serverBytes) += size;
  if (way == up && connection.serverGone) {
    return;
  }
  pipe.partial.append(chunk.data(), size);
  if (way == up) {
    processRequests(connection);
  } else {
    processReplies(connection);
  }
  if (!connection.dead) {
    flushForCut(connection, way);
  }
}

void TcpProxy::Impl::inputEnded(Connection& connection, Way way, bool byReset) {
  Pipe& pipe = connection.pipes[way];
  pipe.inputEnded = true;
  if (!pipe.partial.empty()) {
    queueBytes(connection, way, std::exchange(pipe.partial, {}));
  }
  if (way == down) {
    // A Redis server never closes one half only, so nothing more can be sent to it.
    ::close(std::exchange(connection.server, -1));
    connection.serverGone = true;
    connection.pipes[up].queue.clear();
    connection.pipes[up].queuedBytes = 0;
  }
  if (way == down && byReset) {
    queueCut(connection, down, CutKind::reset, nullptr);
  } else if (way == down || !connection.serverGone) {
    Segment end;
    end.kind = Segment::Kind::end;
    queueSegment(connection, way, std::move(end));
  }
  const auto& replies = connection.pipes[down].queue;
  const bool stalled = std::any_of(
      replies.begin(), replies.end(), [](const Segment& segment) { return segment.stalled; });
  if (connection.serverGone && connection.pipes[up].inputEnded && stalled) {
    // Nobody is left to whom the held-back replies could be released.
    cut(connection, CutKind::reset);
  }
}

void TcpProxy::Impl::processRequests(Connection& connection) {
  Pipe& pipe = connection.pipes[up];
  std::size_t used = 0;
  Argv argv;
  while (!pipe.opaque && !connection.dead) {
    std::size_t length = 0;
    const std::string_view rest = std::string_view(pipe.partial).substr(used);
    const Scan result = scanRequest(rest, length, argv);
    if (result == Scan::incomplete) {
      break;
    }
    if (result == Scan::invalid) {
      pipe.opaque = true;
      connection.pipes[down].opaque = true;
      break;
    }
    handleRequest(connection, std::string(rest.substr(0, length)), argv);
    used += length;
  }
  pipe.partial.erase(0, used);
  if (pipe.opaque && !pipe.partial.empty()) {
    queueBytes(connection, up, std::exchange(pipe.partial, {}));
  }
}

void TcpProxy::Impl::handleRequest(Connection& connection, std::string bytes, const Argv& argv) {
  if (argv.empty()) {
    // Redis ignores empty requests, so no reply will come.
    queueBytes(connection, up, std::move(bytes));
    return;
  }
  ++stats_.requests;
  if (recording_) {
    rememberCommand(argv);
  }
  const std::string name = upperCase(argv[0]);
  if (name == "SUBSCRIBE" || name == "PSUBSCRIBE" || name == "SSUBSCRIBE") {
    connection.info.isSubscriber = true;
  }
  if (name == "CLIENT" && argv.size() == 3 && equalsIgnoringCase(argv[1], "SETNAME")) {
    connection.info.clientName = argv[2];
  }
  if (name == "HELLO") {
    for (std::size_t i = 1; i + 1 < argv.size(); ++i) {
      if (equalsIgnoringCase(argv[i], "SETNAME")) {
        connection.info.clientName = argv[i + 1];
      }
    }
  }

  if (connection.losesRequests) {
    return;
  }
  const std::shared_ptr<RuleState> rule = ruleFor(connection, argv);
  using Kind = Action::Kind;
  const Action action = rule ? rule->action : Action();
  switch (action.kind) {
    case Kind::dropRequest:
      connection.losesRequests = true;
      rule->hit();
      return;
    case Kind::replyWithError: {
      rule->hit();
      PendingReply reply;
      reply.synthetic = true;
      reply.text = "-" + action.text + "\r\n";
      connection.pending.push_back(std::move(reply));
      flushSynthetic(connection);
      return;
    }
    case Kind::cutBeforeForward:
      queueCut(connection, up, action.cut, rule);
      return;
    case Kind::cutMidRequest:
      bytes.resize(bytes.size() / 2);
      queueBytes(connection, up, std::move(bytes));
      queueCut(connection, up, action.cut, rule);
      return;
    case Kind::stallRequest:
      queueBytes(connection, up, std::move(bytes)).stalled = true;
      rule->hit();
      break;
    case Kind::delayRequest:
      queueBytes(connection, up, std::move(bytes), action.delay);
      rule->hit();
      break;
    case Kind::pass:
      queueBytes(connection, up, std::move(bytes));
      if (rule) {
        rule->hit();
      }
      break;
    case Kind::stallReply:
    case Kind::swallowReply:
    case Kind::swallowReplyAndCut:
    case Kind::cutMidReply:
    case Kind::delayReply:
      queueBytes(connection, up, std::move(bytes));
      break;
  }
  const std::size_t replies = repliesTo(connection, argv);
  for (std::size_t i = 0; i < replies; ++i) {
    PendingReply reply;
    reply.rule = rule;
    reply.action = action.kind;
    reply.first = i == 0;
    connection.pending.push_back(std::move(reply));
  }
}

std::size_t TcpProxy::Impl::repliesTo(Connection& connection, const Argv& argv) {
  const std::string name = upperCase(argv[0]);
  if (name == "MONITOR" || name == "SYNC" || name == "PSYNC" ||
      (name == "CLIENT" && argv.size() == 3 && equalsIgnoringCase(argv[1], "REPLY") &&
       !equalsIgnoringCase(argv[2], "ON"))) {
    // From here on replies cannot be told by counting.
    connection.pipes[up].opaque = true;
    connection.pipes[down].opaque = true;
    connection.pending.clear();
    return 0;
  }
  constexpr std::array<std::string_view, 3> kSubscribe{"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"};
  constexpr std::array<std::string_view, 3> kUnsubscribe{
      "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"};
  for (std::size_t kind = 0; kind < kSubscribe.size(); ++kind) {
    std::set<std::string>& names = connection.subscriptions[kind];
    if (name == kSubscribe[kind]) {
      names.insert(argv.begin() + 1, argv.end());
      return std::max<std::size_t>(1, argv.size() - 1);
    }
    if (name == kUnsubscribe[kind] && argv.size() == 1) {
      const std::size_t count = names.size();
      names.clear();
      return std::max<std::size_t>(1, count);
    }
    if (name == kUnsubscribe[kind]) {
      for (std::size_t i = 1; i < argv.size(); ++i) {
        names.erase(argv[i]);
      }
      return argv.size() - 1;
    }
  }
  return 1;
}

std::shared_ptr<TcpProxy::Impl::RuleState> TcpProxy::Impl::ruleFor(const Connection& connection,
                                                                   const Argv& argv) {
  for (const auto& rule : rules_) {
    if (rule->claimed >= rule->options.limit ||
        (rule->options.filter && !rule->options.filter(connection.info)) || !rule->matcher(argv)) {
      continue;
    }
    if (rule->matched++ < rule->options.skip) {
      continue;
    }
    ++rule->claimed;
    return rule;
  }
  return nullptr;
}

void TcpProxy::Impl::processReplies(Connection& connection) {
  Pipe& pipe = connection.pipes[down];
  std::size_t used = 0;
  std::vector<std::string> parts;
  while (!pipe.opaque && !connection.dead && used < pipe.partial.size()) {
    std::size_t length = 0;
    parts.clear();
    const std::string_view rest = std::string_view(pipe.partial).substr(used);
    const Scan result = scanReply(rest, length, 0, parts);
    if (result == Scan::incomplete) {
      break;
    }
    if (result == Scan::invalid) {
      pipe.opaque = true;
      break;
    }
    handleReply(connection, std::string(rest.substr(0, length)), parts);
    used += length;
  }
  pipe.partial.erase(0, used);
  if (pipe.opaque && !pipe.partial.empty()) {
    queueBytes(connection, down, std::exchange(pipe.partial, {}));
  }
}

void TcpProxy::Impl::handleReply(Connection& connection,
                                 std::string bytes,
                                 const std::vector<std::string>& parts) {
  const std::string_view head = parts.empty() ? std::string_view() : std::string_view(parts[0]);
  const bool push = bytes[0] == '>';
  const bool subscribed = connection.info.isSubscriber && (push || bytes[0] == '*');
  const bool confirmation =
      subscribed && parts.size() == 3 &&
      (head == "subscribe" || head == "unsubscribe" || head == "psubscribe" ||
       head == "punsubscribe" || head == "ssubscribe" || head == "sunsubscribe");
  if (confirmation) {
    std::int64_t count = 0;
    std::from_chars(parts[2].data(), parts[2].data() + parts[2].size(), count);
    (head[0] == 's' && head[1] != 'u' ? connection.confirmedShardSubscriptions
                                      : connection.confirmedSubscriptions) = count;
  }
  const bool receiving =
      connection.confirmedSubscriptions > 0 || connection.confirmedShardSubscriptions > 0;
  const bool message = subscribed && receiving && !confirmation &&
                       (head == "message" || head == "pmessage" || head == "smessage");
  if (message || (push && !confirmation) || connection.pending.empty()) {
    queueBytes(connection, down, std::move(bytes));
    return;
  }

  const PendingReply pending = std::move(connection.pending.front());
  connection.pending.pop_front();
  using Kind = Action::Kind;
  Kind action = pending.action;
  if (pending.rule && pending.rule->options.ignoreErrorReplies && bytes[0] == '-') {
    --pending.rule->claimed;
    action = Kind::pass;
  } else if (!pending.first && action != Kind::swallowReply) {
    // The first reply's delay, stall or cut covers those behind it.
    action = Kind::pass;
  }
  switch (action) {
    case Kind::stallReply:
      queueBytes(connection, down, std::move(bytes)).stalled = true;
      pending.rule->hit();
      break;
    case Kind::swallowReply:
      if (pending.first) {
        pending.rule->hit();
      }
      break;
    case Kind::swallowReplyAndCut:
      queueCut(connection, down, pending.rule->action.cut, pending.rule);
      break;
    case Kind::cutMidReply:
      bytes.resize(bytes.size() / 2);
      queueBytes(connection, down, std::move(bytes));
      queueCut(connection, down, pending.rule->action.cut, pending.rule);
      break;
    case Kind::delayReply:
      queueBytes(connection, down, std::move(bytes), pending.rule->action.delay);
      pending.rule->hit();
      break;
    default:
      queueBytes(connection, down, std::move(bytes));
      break;
  }
  flushSynthetic(connection);
}

void TcpProxy::Impl::flushSynthetic(Connection& connection) {
  while (!connection.pending.empty() && connection.pending.front().synthetic) {
    queueBytes(connection, down, std::move(connection.pending.front().text));
    connection.pending.pop_front();
  }
}

/// A cut after n bytes may fall into a request or reply that is not complete yet.
void TcpProxy::Impl::flushForCut(Connection& connection, Way way) {
  Pipe& pipe = connection.pipes[way];
  if (pipe.cutAfter && !pipe.partial.empty() &&
      pipe.queuedBytes + pipe.partial.size() >= *pipe.cutAfter) {
    queueBytes(connection, way, std::exchange(pipe.partial, {}));
  }
}

TcpProxy::Impl::Segment& TcpProxy::Impl::queueSegment(Connection& connection,
                                                      Way way,
                                                      Segment segment,
                                                      Milliseconds extraDelay) {
  Pipe& pipe = connection.pipes[way];
  const DelaySetting& setting = delays_[way];
  Clock::duration delay = extraDelay;
  if ((setting.delay.count() > 0 || setting.jitter.count() > 0) &&
      setting.filter(connection.info)) {
    std::uniform_int_distribution<std::int64_t> jitter(0, setting.jitter.count());
    delay += setting.delay + Milliseconds(jitter(random_));
  }
  segment.notBefore = Clock::now() + delay;
  pipe.queuedBytes += segment.bytes.size();
  return pipe.queue.emplace_back(std::move(segment));
}

TcpProxy::Impl::Segment& TcpProxy::Impl::queueBytes(Connection& connection,
                                                    Way way,
                                                    std::string bytes,
                                                    Milliseconds extraDelay) {
  Segment segment;
  segment.bytes = std::move(bytes);
  return queueSegment(connection, way, std::move(segment), extraDelay);
}

void TcpProxy::Impl::queueCut(Connection& connection,
                              Way way,
                              CutKind kind,
                              std::shared_ptr<RuleState> hit) {
  Segment segment;
  segment.kind = Segment::Kind::cut;
  segment.cut = kind;
  segment.hit = std::move(hit);
  queueSegment(connection, way, std::move(segment));
}

bool TcpProxy::Impl::blackHoled(const Connection& connection, Way way) const {
  return blackHole_[way] && blackHoleFilter_(connection.info);
}

void TcpProxy::Impl::pump(Connection& connection, Way way) {
  Pipe& pipe = connection.pipes[way];
  while (!connection.dead && !pipe.queue.empty() && !pipe.outputBlocked) {
    Segment& segment = pipe.queue.front();
    const Clock::time_point now = Clock::now();
    if (segment.stalled || blackHoled(connection, way)) {
      return;
    }
    if (segment.notBefore > now) {
      wakeAt(segment.notBefore);
      return;
    }
    const int fd = way == up ? connection.server : connection.client;
    if (way == up && (fd < 0 || connection.connecting)) {
      return;
    }
    if (segment.kind == Segment::Kind::cut) {
      if (segment.hit) {
        segment.hit->hit([&] { cut(connection, segment.cut); });
      } else {
        cut(connection, segment.cut);
      }
      return;
    }
    if (segment.kind == Segment::Kind::end) {
      pipe.queue.pop_front();
      if (way == up) {
        ::shutdown(connection.server, SHUT_WR);
        continue;
      }
      cut(connection, CutKind::orderly);
      return;
    }
    std::size_t size = segment.bytes.size() - segment.sent;
    const ThrottleSetting& throttle = throttles_[way];
    const bool throttled = throttle.bytes > 0 && throttle.filter(connection.info);
    if (throttled) {
      if (pipe.throttleBudget == 0) {
        if (pipe.throttledUntil > now) {
          wakeAt(pipe.throttledUntil);
          return;
        }
        pipe.throttleBudget = throttle.bytes;
        pipe.throttledUntil = now + throttle.interval;
      }
      size = std::min(size, pipe.throttleBudget);
    }
    if (pipe.cutAfter) {
      size = std::min(size, *pipe.cutAfter);
    }
    const ssize_t n = ::send(fd, segment.bytes.data() + segment.sent, size, MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EAGAIN) {
        pipe.outputBlocked = true;
      } else if (errno != EINTR) {
        outputFailed(connection, way);
      }
      return;
    }
    const auto sent = static_cast<std::size_t>(n);
    segment.sent += sent;
    pipe.queuedBytes -= sent;
    if (throttled) {
      pipe.throttleBudget -= sent;
    }
    if (segment.sent == segment.bytes.size()) {
      pipe.queue.pop_front();
    }
    if (pipe.cutAfter) {
      *pipe.cutAfter -= sent;
      if (*pipe.cutAfter == 0) {
        cut(connection, pipe.cutKind);
        return;
      }
    }
  }
}

void TcpProxy::Impl::outputFailed(Connection& connection, Way way) {
  Pipe& pipe = connection.pipes[way];
  pipe.queue.clear();
  pipe.queuedBytes = 0;
  if (way == down) {
    // The client is gone; what it has sent before still reaches the server.
    Pipe& requests = connection.pipes[up];
    if (!requests.inputEnded) {
      readFrom(connection, up);
    }
    if (!connection.dead && !requests.inputEnded) {
      inputEnded(connection, up, true);
    }
    if (connection.serverGone) {
      cut(connection, CutKind::reset);
    }
  }
  // A server that is gone shows when it is read from, after its last replies.
}

void TcpProxy::Impl::cut(Connection& connection, CutKind kind) {
  if (connection.dead) {
    return;
  }
  connection.dead = true;
  if (kind == CutKind::reset) {
    closeWithReset(std::exchange(connection.client, -1));
  } else {
    closeOrderly(connection.client);
  }
  if (connection.connecting) {
    ::close(std::exchange(connection.server, -1));
  } else {
    closeOrderly(connection.server);
  }
}

void TcpProxy::Impl::armCut(Connection& connection, Way way, const CutArm& arm) {
  Pipe& pipe = connection.pipes[way];
  if (arm.after == 0) {
    cut(connection, arm.kind);
    return;
  }
  pipe.cutAfter = arm.after;
  pipe.cutKind = arm.kind;
  flushForCut(connection, way);
}

void TcpProxy::Impl::setRefusing(bool refuse) {
  if (refuse && !refusing_) {
    // Unlike close() this keeps the port bound, so nobody else can take it meanwhile.
    ::shutdown(listener_, SHUT_RDWR);
  } else if (!refuse && refusing_ && ::listen(listener_, SOMAXCONN) != 0) {
    throw std::system_error(errno, std::generic_category(), "proxy cannot listen");
  }
  refusing_ = refuse;
}

void TcpProxy::Impl::releaseStalled(bool alsoDelayed) {
  for (const auto& connection : connections_) {
    for (Pipe& pipe : connection->pipes) {
      for (Segment& segment : pipe.queue) {
        segment.stalled = false;
        if (alsoDelayed) {
          segment.notBefore = Clock::time_point();
        }
      }
    }
  }
}

void TcpProxy::Impl::rememberCommand(const Argv& argv) {
  {
    const std::lock_guard guard(monitorMutex_);
    recorded_.push_back(argv);
  }
  monitorChanged_.notify_all();
}

TcpProxy::Filter TcpProxy::all() {
  return [](const ConnectionInfo&) { return true; };
}

TcpProxy::Filter TcpProxy::subscribersOnly() {
  return [](const ConnectionInfo& connection) { return connection.isSubscriber; };
}

TcpProxy::Filter TcpProxy::commandsOnly() {
  return [](const ConnectionInfo& connection) { return !connection.isSubscriber; };
}

TcpProxy::Matcher TcpProxy::command(std::string_view name) {
  const std::size_t space = name.find(' ');
  const std::string verb(name.substr(0, space));
  const std::string sub(space == std::string_view::npos ? "" : name.substr(space + 1));
  return [verb, sub](const Argv& argv) {
    return equalsIgnoringCase(argv[0], verb) &&
           (sub.empty() || (argv.size() > 1 && equalsIgnoringCase(argv[1], sub)));
  };
}

TcpProxy::Matcher TcpProxy::command(std::string_view name, std::string_view argument) {
  return [named = command(name), with = withArgument(argument)](const Argv& argv) {
    return named(argv) && with(argv);
  };
}

TcpProxy::Matcher TcpProxy::withArgument(std::string_view argument) {
  return [wanted = std::string(argument)](const Argv& argv) {
    return std::find(argv.begin() + 1, argv.end(), wanted) != argv.end();
  };
}

TcpProxy::Matcher TcpProxy::script(std::string_view key) {
  return [key = std::string(key)](const Argv& argv) {
    constexpr std::size_t kFirstKey = 3;
    if (argv.size() <= kFirstKey ||
        !(equalsIgnoringCase(argv[0], "EVAL") || equalsIgnoringCase(argv[0], "EVALSHA"))) {
      return false;
    }
    std::size_t keys = 0;
    std::from_chars(argv[2].data(), argv[2].data() + argv[2].size(), keys);
    for (std::size_t i = 0; i < keys && kFirstKey + i < argv.size(); ++i) {
      if (argv[kFirstKey + i] == key) {
        return true;
      }
    }
    return false;
  };
}

TcpProxy::Matcher TcpProxy::anyCommand() {
  return [](const Argv&) { return true; };
}

TcpProxy::Action TcpProxy::Action::pass() {
  return {};
}

TcpProxy::Action TcpProxy::Action::dropRequest() {
  Action action;
  action.kind = Kind::dropRequest;
  return action;
}

TcpProxy::Action TcpProxy::Action::stallRequest() {
  Action action;
  action.kind = Kind::stallRequest;
  return action;
}

TcpProxy::Action TcpProxy::Action::stallReply() {
  Action action;
  action.kind = Kind::stallReply;
  return action;
}

TcpProxy::Action TcpProxy::Action::swallowReply() {
  Action action;
  action.kind = Kind::swallowReply;
  return action;
}

TcpProxy::Action TcpProxy::Action::swallowReplyAndCut(CutKind kind) {
  Action action;
  action.kind = Kind::swallowReplyAndCut;
  action.cut = kind;
  return action;
}

TcpProxy::Action TcpProxy::Action::cutBeforeForward(CutKind kind) {
  Action action;
  action.kind = Kind::cutBeforeForward;
  action.cut = kind;
  return action;
}

TcpProxy::Action TcpProxy::Action::cutMidRequest(CutKind kind) {
  Action action;
  action.kind = Kind::cutMidRequest;
  action.cut = kind;
  return action;
}

TcpProxy::Action TcpProxy::Action::cutMidReply(CutKind kind) {
  Action action;
  action.kind = Kind::cutMidReply;
  action.cut = kind;
  return action;
}

TcpProxy::Action TcpProxy::Action::delayRequest(Milliseconds delay) {
  Action action;
  action.kind = Kind::delayRequest;
  action.delay = delay;
  return action;
}

TcpProxy::Action TcpProxy::Action::delayReply(Milliseconds delay) {
  Action action;
  action.kind = Kind::delayReply;
  action.delay = delay;
  return action;
}

TcpProxy::Action TcpProxy::Action::replyWithError(std::string_view text) {
  Action action;
  action.kind = Kind::replyWithError;
  action.text = text;
  return action;
}

std::size_t TcpProxy::Rule::hits() const {
  const std::lock_guard guard(state_->mutex);
  return state_->hits;
}

bool TcpProxy::Rule::waitForHits(std::size_t n, Milliseconds deadline) const {
  std::unique_lock guard(state_->mutex);
  return state_->changed.wait_until(
      guard, Deadline(deadline).at(), [&] { return state_->hits >= n; });
}

TcpProxy::TcpProxy(const RedisServer& target) : TcpProxy(PortReservation(), target.port()) {
  const std::string uri = target.uri();
  const std::size_t at = uri.rfind('@');
  if (at != std::string::npos) {
    const std::size_t start = uri.find("//") + 2;
    userInfo_ = uri.substr(start, at + 1 - start);
  }
}

TcpProxy::TcpProxy(std::uint16_t targetPort, std::string targetHost)
    : impl_(std::make_unique<Impl>(PortReservation(), targetPort, std::move(targetHost))),
      owner_(::getpid()) {}

TcpProxy::TcpProxy(PortReservation at, std::uint16_t targetPort)
    : impl_(std::make_unique<Impl>(std::move(at), targetPort, "127.0.0.1")), owner_(::getpid()) {}

TcpProxy::~TcpProxy() {
  if (owner_ != ::getpid()) {
    // Its thread does not exist here and cannot be joined.
    (void)impl_.release();
  }
}

std::uint16_t TcpProxy::port() const {
  return impl_->port_;
}

std::string TcpProxy::uri() const {
  return "redis://" + userInfo_ + "127.0.0.1:" + std::to_string(port());
}

void TcpProxy::setTarget(std::uint16_t port, std::string host) {
  impl_->call([&] {
    impl_->targetPort_ = port;
    impl_->targetHost_ = host;
  });
}

namespace {

bool covers(TcpProxy::Direction direction, bool toServer) {
  return direction == TcpProxy::Direction::both ||
         (direction == TcpProxy::Direction::toServer) == toServer;
}

}  // namespace

void TcpProxy::setDelay(Direction direction,
                        Milliseconds delay,
                        Milliseconds jitter,
                        Filter filter) {
  impl_->call([&] {
    for (const auto way : {Impl::up, Impl::down}) {
      if (covers(direction, way == Impl::up)) {
        impl_->delays_[way] = {delay, jitter, filter};
      }
    }
  });
}

void TcpProxy::setThrottle(Direction direction,
                           std::size_t bytes,
                           Milliseconds interval,
                           Filter filter) {
  impl_->call([&] {
    for (const auto way : {Impl::up, Impl::down}) {
      if (covers(direction, way == Impl::up)) {
        impl_->throttles_[way] = {bytes, interval, filter};
        for (const auto& connection : impl_->connections_) {
          connection->pipes[way].throttleBudget = 0;
          connection->pipes[way].throttledUntil = Clock::time_point();
        }
      }
    }
  });
}

void TcpProxy::blackHole(Direction direction, Filter filter) {
  impl_->call([&] {
    impl_->blackHole_ = {covers(direction, true), covers(direction, false)};
    impl_->blackHoleFilter_ = filter;
  });
}

void TcpProxy::endBlackHole() {
  impl_->call([&] { impl_->blackHole_ = {false, false}; });
}

void TcpProxy::refuseConnections(bool refuse) {
  impl_->call([&] { impl_->setRefusing(refuse); });
}

std::size_t TcpProxy::cutAll(CutKind kind, Filter filter) {
  std::size_t count = 0;
  impl_->call([&] {
    for (const auto& connection : impl_->connections_) {
      if (!connection->dead && filter(connection->info)) {
        impl_->cut(*connection, kind);
        ++count;
      }
    }
  });
  return count;
}

void TcpProxy::cutCurrentAfterClientBytes(std::size_t n, CutKind kind, Filter filter) {
  impl_->call([&] {
    for (const auto& connection : impl_->connections_) {
      if (filter(connection->info)) {
        impl_->armCut(*connection, Impl::up, {n, kind});
      }
    }
  });
}

void TcpProxy::cutNextAfterClientBytes(std::size_t n, CutKind kind) {
  impl_->call([&] { impl_->cutNext_[Impl::up] = Impl::CutArm{n, kind}; });
}

void TcpProxy::cutCurrentAfterServerBytes(std::size_t n, CutKind kind, Filter filter) {
  impl_->call([&] {
    for (const auto& connection : impl_->connections_) {
      if (filter(connection->info)) {
        impl_->armCut(*connection, Impl::down, {n, kind});
      }
    }
  });
}

void TcpProxy::cutNextAfterServerBytes(std::size_t n, CutKind kind) {
  impl_->call([&] { impl_->cutNext_[Impl::down] = Impl::CutArm{n, kind}; });
}

TcpProxy::Rule TcpProxy::addRule(Matcher matcher, Action action) {
  return addRule(std::move(matcher), std::move(action), RuleOptions());
}

TcpProxy::Rule TcpProxy::addRule(Matcher matcher, Action action, RuleOptions options) {
  auto state = std::make_shared<Rule::State>();
  state->matcher = std::move(matcher);
  state->action = std::move(action);
  state->options = std::move(options);
  impl_->call([&] { impl_->rules_.push_back(state); });
  return Rule(std::move(state));
}

void TcpProxy::removeRule(const Rule& rule) {
  impl_->call([&] { std::erase(impl_->rules_, rule.state_); });
}

void TcpProxy::clearRules() {
  impl_->call([&] { impl_->rules_.clear(); });
}

void TcpProxy::releaseStalled() {
  impl_->call([&] { impl_->releaseStalled(false); });
}

void TcpProxy::heal() {
  impl_->call([&] {
    impl_->delays_ = {};
    impl_->throttles_ = {};
    impl_->blackHole_ = {false, false};
    impl_->cutNext_ = {};
    impl_->rules_.clear();
    for (const auto& connection : impl_->connections_) {
      for (Impl::Pipe& pipe : connection->pipes) {
        pipe.cutAfter.reset();
      }
    }
    impl_->releaseStalled(true);
    impl_->setRefusing(false);
  });
}

TcpProxy::Stats TcpProxy::stats() const {
  Stats stats;
  impl_->call([&] {
    stats = impl_->stats_;
    for (const auto& connection : impl_->connections_) {
      stats.open += connection->dead ? 0U : 1U;
    }
  });
  return stats;
}

std::vector<TcpProxy::ConnectionInfo> TcpProxy::connections() const {
  std::vector<ConnectionInfo> result;
  impl_->call([&] {
    for (const auto& connection : impl_->connections_) {
      if (!connection->dead) {
        result.push_back(connection->info);
      }
    }
  });
  return result;
}

bool TcpProxy::waitForAccepted(std::uint64_t n, Milliseconds deadline) const {
  std::unique_lock guard(impl_->monitorMutex_);
  return impl_->monitorChanged_.wait_until(
      guard, Deadline(deadline).at(), [&] { return impl_->accepted_ >= n; });
}

void TcpProxy::recordCommands(bool record) {
  impl_->call([&] { impl_->recording_ = record; });
}

std::vector<TcpProxy::Argv> TcpProxy::commands() const {
  const std::lock_guard guard(impl_->monitorMutex_);
  return impl_->recorded_;
}

std::size_t TcpProxy::countCommands(const Matcher& matcher) const {
  const std::lock_guard guard(impl_->monitorMutex_);
  return static_cast<std::size_t>(
      std::count_if(impl_->recorded_.begin(), impl_->recorded_.end(), matcher));
}

void TcpProxy::clearCommands() {
  const std::lock_guard guard(impl_->monitorMutex_);
  impl_->recorded_.clear();
}

bool TcpProxy::waitForCommands(const Matcher& matcher, std::size_t n, Milliseconds deadline) const {
  std::unique_lock guard(impl_->monitorMutex_);
  return impl_->monitorChanged_.wait_until(guard, Deadline(deadline).at(), [&] {
    return static_cast<std::size_t>(
               std::count_if(impl_->recorded_.begin(), impl_->recorded_.end(), matcher)) >= n;
  });
}

}  // namespace rlock::test
