// SPDX-License-Identifier: Apache-2.0

// Connector: one attempt to connect, over all addresses. Addresses are tried one after the other,
// each with a head start before the next is tried beside it (as in RFC 8305), and the first
// handshake that succeeds ends the attempt. An Attempt outlives none of its callbacks: they hold
// weak references, and those that come after the end find `done_`.

#include "net/connector.hpp"

#include "net/address.hpp"
#include "net/approach.hpp"
#include "net/resolver.hpp"
#include <rlock/log.hpp>

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <utility>
#include <variant>
#include <vector>

namespace rlock::detail::net {

using SteadyClock = std::chrono::steady_clock;

namespace {

/// How long an address is the only one before the next is tried beside it: long enough for a
/// handshake with a server far away, short enough to be no outage when packets are dropped.
constexpr std::chrono::milliseconds kHeadStart{250};

}  // namespace

/// One start() of a Connector: resolves the endpoints, and connects to their addresses one beside
/// the other, each with a head start before the next.
///
/// Loop thread only; its callbacks are the handlers of lookups, approaches and timers. Each holds
/// it weakly, so that cancel() and the first outcome end all the others. The handler is called
/// once, as the last thing, or not at all after cancel(). An exception anywhere is an outcome, too:
/// guarded() makes it one.
class Connector::Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  Attempt(Loop& loop,
          std::shared_ptr<const LinkSettings> settings,
          std::shared_ptr<Favourite> favourite,
          bool probeKill)
      : loop_(loop),
        settings_(std::move(settings)),
        favourite_(std::move(favourite)),
        probeKill_(probeKill),
        startedAt_(SteadyClock::now()),
        deadline_(startedAt_ + settings_->connectTimeout),
        next_(loop, [this] { guarded([this] { launch(); }); }),
        end_(loop, [this] { guarded([this] { timeIsOver(); }); }) {}

  /// Before begin().
  void onEnd(Handler&& handler) noexcept { handler_ = std::move(handler); }
  void begin();
  void cancel() noexcept;

 private:
  struct Candidate {
    std::size_t endpoint;
    Address address;
  };
  struct Running {
    std::size_t endpoint;
    std::string address;
    std::shared_ptr<Approach> approach;
  };
  struct Resolving {
    std::size_t endpoint;
    std::unique_ptr<NameLookup> lookup;
  };
  struct Failure {
    std::size_t endpoint;
    std::string line;
  };
  struct Replica {
    Running running;
    Established established;
  };

  void launch();
  bool prepare(std::size_t endpoint);
  bool resolve(std::size_t endpoint);
  void resolved(std::size_t endpoint, const NameAnswer& answer);
  bool approach(const Candidate& candidate);
  void ended(const Approach* approach, Approach::Outcome outcome);
  void established(const Running& running, Established established);
  void take(const Running& running, Established established);
  [[nodiscard]] static bool isReplica(const ServerSession& session) noexcept {
    return session.role == "replica" || session.role == "slave";
  }
  /// Whether another address may still lead to a connection.
  [[nodiscard]] bool othersLeft() const noexcept {
    return !endpoints_.empty() || !ready_.empty() || !resolving_.empty() || !running_.empty();
  }
  void timeIsOver();
  [[nodiscard]] SteadyClock::time_point endOfHeadStart() const;
  void note(std::size_t endpoint, const std::string& address, const ConnectFailure& failure);
  void stop() noexcept;
  void finishFailed();
  void finish(Result<Established> result);
  template <class F>
  void guarded(F&& step);
  void log(LogLevel level, const std::string& text) const {
    if (settings_->log) {
      settings_->log->write(level, text);
    }
  }

  Loop& loop_;
  const std::shared_ptr<const LinkSettings> settings_;
  const std::shared_ptr<Favourite> favourite_;
  const bool probeKill_;
  Handler handler_;
  const SteadyClock::time_point startedAt_;
  const SteadyClock::time_point deadline_;
  Timer next_;
  Timer end_;
  bool done_ = false;

  std::deque<std::size_t> endpoints_;  // not yet begun
  std::deque<Candidate> ready_;
  std::vector<Resolving> resolving_;
  std::vector<Running> running_;
  std::optional<Replica> replica_;  // for want of a master

  std::vector<Failure> failures_;
  std::optional<Error> lasting_;
};

/// Runs one step. If it throws, the attempt ends with that error, since no later event would
/// continue it.
template <class F>
void Connector::Attempt::guarded(F&& step) {
  const auto keep = shared_from_this();
  try {
    step();
  } catch (const Error& error) {
    if (done_) {
      throw;  // the handler's
    }
    finish(error);
  } catch (const std::exception& error) {
    if (done_) {
      throw;
    }
    finish(attemptFailure(error));
  }
}

void Connector::Attempt::begin() {
  // Race: cancel() may come between the call that posts this and its turn on the loop.
  if (done_) {
    return;
  }
  guarded([this] {
    for (std::size_t i = 0; i < settings_->endpoints.size(); ++i) {
      endpoints_.push_back(i);
    }
    // The endpoint that worked last comes first. If its server took no writes, the next one does,
    // and so on in turn: two that take none would send the client to each other for ever.
    if (favourite_->endpoint < endpoints_.size()) {
      const auto last = endpoints_.begin() + static_cast<std::ptrdiff_t>(favourite_->endpoint);
      if (favourite_->preferred) {
        endpoints_.erase(last);
        endpoints_.push_front(favourite_->endpoint);
      } else {
        std::rotate(endpoints_.begin(), last + 1, endpoints_.end());
      }
    }
    end_.armAt(deadline_);
    launch();
  });
}

void Connector::Attempt::cancel() noexcept {
  done_ = true;
  stop();
  // Last: the handler may own what owns this attempt.
  const Handler dropped = std::move(handler_);
}

/// Starts whatever comes next, until something has to be waited for.
void Connector::Attempt::launch() {
  bool waits = false;
  while (!waits && !done_) {
    if (!ready_.empty()) {
      const Candidate candidate = std::move(ready_.front());
      ready_.pop_front();
      waits = approach(candidate);
    } else if (!endpoints_.empty()) {
      const std::size_t endpoint = endpoints_.front();
      endpoints_.pop_front();
      waits = prepare(endpoint);
    } else {
      break;
    }
  }
  if (done_) {
    return;
  }
  // Nothing is under way that could still succeed.
  if (running_.empty() && resolving_.empty()) {
    finishFailed();
  } else if (!ready_.empty() || !endpoints_.empty()) {
    next_.armAt(endOfHeadStart());
  } else {
    next_.disarm();
  }
}

/// Each head start is short enough that all remaining addresses are tried before the deadline,
/// however many there are.
SteadyClock::time_point Connector::Attempt::endOfHeadStart() const {
  const auto now = SteadyClock::now();
  const auto left = std::max(deadline_ - now, SteadyClock::duration::zero());
  const auto turns = static_cast<SteadyClock::duration::rep>(ready_.size() + endpoints_.size() + 1);
  return now + std::min<SteadyClock::duration>(kHeadStart, left / turns);
}

/// Returns true when the addresses come later.
bool Connector::Attempt::prepare(std::size_t endpoint) {
  const Endpoint& where = settings_->endpoints[endpoint];
  if (!where.path.empty()) {
    if (auto address = unixAddress(where)) {
      ready_.push_front({endpoint, *std::move(address)});
    } else {
      note(
          endpoint, {}, {Errc::invalidArgument, "the path of a Unix socket has at most 107 bytes"});
    }
    return false;
  }
  // Needs no resolver, which may be busy or without a network.
  if (auto address = literalAddress(where)) {
    ready_.push_front({endpoint, *std::move(address)});
    return false;
  }
  return resolve(endpoint);
}

bool Connector::Attempt::resolve(std::size_t endpoint) {
  try {
    resolving_.push_back({endpoint,
                          std::make_unique<NameLookup>(
                              loop_,
                              settings_->endpoints[endpoint].host,
                              [weak = weak_from_this(), endpoint](const NameAnswer& answer) {
                                if (const auto self = weak.lock()) {
                                  self->guarded([&] { self->resolved(endpoint, answer); });
                                }
                              })});
    return true;
    // No thread for the lookup: only this endpoint fails.
  } catch (const std::exception& error) {
    note(endpoint,
         {},
         {Errc::connectionFailed, std::string("name resolution failed: ") + error.what()});
    return false;
  }
}

void Connector::Attempt::resolved(std::size_t endpoint, const NameAnswer& answer) {
  std::erase_if(resolving_, [&](const Resolving& one) { return one.endpoint == endpoint; });
  if (!answer.error.empty()) {
    note(endpoint, {}, {Errc::connectionFailed, "name resolution failed: " + answer.error});
  }
  std::vector<Candidate> candidates;
  for (const addrinfo* info = answer.addresses.get(); info != nullptr; info = info->ai_next) {
    if (info->ai_family != AF_INET && info->ai_family != AF_INET6) {
      continue;
    }
    Address address =
        makeAddress(info->ai_addr, info->ai_addrlen, settings_->endpoints[endpoint].port);
    const auto same = [&](const Candidate& other) { return other.address.text == address.text; };
    // A resolver may name an address once for each entry of /etc/hosts.
    if (std::none_of(candidates.begin(), candidates.end(), same)) {
      candidates.push_back({endpoint, std::move(address)});
    }
  }
  if (candidates.empty() && answer.error.empty()) {
    note(endpoint, {}, {Errc::connectionFailed, "the name has no address"});
  }
  std::stable_partition(candidates.begin(), candidates.end(), [&](const Candidate& candidate) {
    return (favourite_->address == candidate.address.text) == favourite_->preferred;
  });
  ready_.insert(ready_.begin(),
                std::make_move_iterator(candidates.begin()),
                std::make_move_iterator(candidates.end()));
  launch();
}

/// Returns true when the outcome comes later.
bool Connector::Attempt::approach(const Candidate& candidate) {
  const auto made = std::make_shared<Approach>(
      loop_, settings_, settings_->endpoints[candidate.endpoint], candidate.address, probeKill_);
  running_.push_back({candidate.endpoint, candidate.address.text, made});
  const auto failure =
      made->start([weak = weak_from_this(), id = made.get()](Approach::Outcome outcome) {
        if (const auto self = weak.lock()) {
          self->guarded([&] { self->ended(id, std::move(outcome)); });
        }
      });
  if (!failure) {
    return true;
  }
  running_.pop_back();
  note(candidate.endpoint, candidate.address.text, *failure);
  return false;
}

void Connector::Attempt::ended(const Approach* approach, Approach::Outcome outcome) {
  const auto found = std::find_if(running_.begin(), running_.end(), [&](const Running& one) {
    return one.approach.get() == approach;
  });
  // An approach may tell its end after the attempt has let go of it.
  if (found == running_.end()) {
    return;
  }
  const Running running = std::move(*found);
  running_.erase(found);
  if (auto* const good = std::get_if<Established>(&outcome)) {
    established(running, std::move(*good));
    return;
  }
  note(running.endpoint, running.address, std::get<ConnectFailure>(outcome));
  launch();
}

void Connector::Attempt::established(const Running& running, Established established) {
  const ServerSession& session = *established.session;
  if (settings_->peer == Peer::server && !settings_->cluster && isReplica(session) &&
      othersLeft()) {
    // A key that a replica lacks may be at its master, which may be one of the others.
    if (!replica_) {
      replica_.emplace(Replica{running, std::move(established)});
      // A caller waits for the connection until the deadline, and no longer.
      const auto now = SteadyClock::now();
      end_.armAt(now + std::max(deadline_ - now, SteadyClock::duration::zero()) / 2);
    }
    launch();
    return;
  }
  take(running, std::move(established));
}

/// This is the connection.
void Connector::Attempt::take(const Running& running, Established established) {
  const ServerSession& session = *established.session;
  favourite_->endpoint = running.endpoint;
  favourite_->address = running.address;
  favourite_->preferred = true;
  log(settings_->peer == Peer::sentinel ? LogLevel::debug : LogLevel::info,
      "connected to " + session.node +
          (session.address == session.node ? "" : " (" + session.address + ")") +
          (session.serverVersion.empty() ? "" : ", server version " + session.serverVersion) +
          ", connection id " + std::to_string(session.clientId));
  if (!settings_->cluster && isReplica(session)) {
    std::vector<std::string>& told = favourite_->replicas;
    const bool news = std::find(told.begin(), told.end(), session.node) == told.end();
    if (news) {
      told.push_back(session.node);
    }
    log(news ? LogLevel::warning : LogLevel::debug,
        session.node + " is a replica, which takes no writes; give its master's address");
  } else {
    favourite_->replicas.clear();
  }
  finish(std::move(established));
}

void Connector::Attempt::timeIsOver() {
  for (const Running& one : running_) {
    note(one.endpoint,
         one.address,
         {Errc::connectionFailed, std::string(one.approach->whatIsMissing())});
  }
  for (const Resolving& one : resolving_) {
    note(one.endpoint, {}, {Errc::connectionFailed, "name resolution timed out"});
  }
  finishFailed();
}

void Connector::Attempt::note(std::size_t endpoint,
                              const std::string& address,
                              const ConnectFailure& failure) {
  std::string where = toString(settings_->endpoints[endpoint]);
  if (!address.empty() && address != where) {
    where += " (" + address + ")";
  }
  // A lasting error, such as a wrong password, says more than a refused connection: it is what has
  // to be corrected.
  if (failure.errc != Errc::connectionFailed && !lasting_) {
    ErrorContext context;
    context.node = where;
    context.serverMessage = failure.serverMessage;
    lasting_.emplace(failure.errc, failure.reason, std::move(context));
  }
  std::string line = where + ": " + failure.reason;
  if (!failure.serverMessage.empty()) {
    line += " (" + failure.serverMessage + ")";
  }
  if (settings_->log && settings_->log->enabled(LogLevel::debug)) {
    log(LogLevel::debug, "cannot connect to " + line);
  }
  failures_.push_back({endpoint, std::move(line)});
}

void Connector::Attempt::stop() noexcept {
  next_.disarm();
  end_.disarm();
  endpoints_.clear();
  ready_.clear();
  resolving_.clear();
  replica_.reset();
  const std::vector<Running> running = std::move(running_);
  running_.clear();
  for (const Running& one : running) {
    one.approach->cancel();
  }
}

void Connector::Attempt::finishFailed() {
  if (replica_) {
    Replica replica = std::move(*replica_);
    replica_.reset();
    take(replica.running, std::move(replica.established));
    return;
  }
  ErrorContext context;
  context.elapsed =
      std::chrono::duration_cast<std::chrono::milliseconds>(SteadyClock::now() - startedAt_);
  if (lasting_) {
    finish(lasting_->withContext(context));
    return;
  }
  if (settings_->endpoints.empty()) {
    finish(Error(Errc::invalidArgument, "no endpoint to connect to"));
    return;
  }
  if (settings_->endpoints.size() == 1) {
    context.node = toString(settings_->endpoints.front());
  }
  std::stable_sort(failures_.begin(), failures_.end(), [](const Failure& a, const Failure& b) {
    return a.endpoint < b.endpoint;
  });
  constexpr std::size_t kListed = 8;
  std::string text = "cannot connect to ";
  for (std::size_t i = 0; i < std::min(failures_.size(), kListed); ++i) {
    text += (i == 0 ? "" : "; ") + failures_[i].line;
  }
  if (failures_.size() > kListed) {
    text += "; and " + std::to_string(failures_.size() - kListed) + " more addresses";
  }
  finish(Error(Errc::connectionFailed, text, std::move(context)));
}

void Connector::Attempt::finish(Result<Established> result) {
  if (done_) {
    return;
  }
  const auto keep = shared_from_this();
  done_ = true;
  stop();
  Handler handler = std::move(handler_);
  if (handler) {
    handler(std::move(result));
  }
}

Connector::Connector(Loop& loop, LinkSettings settings, bool probeKill)
    : loop_(loop),
      settings_(std::make_shared<const LinkSettings>(std::move(settings))),
      favourite_(std::make_shared<Favourite>()),
      probeKill_(probeKill) {}

Connector::~Connector() {
  cancel();
}

void Connector::start(Handler&& handler) {
  cancel();
  auto attempt = std::make_shared<Attempt>(loop_, settings_, favourite_, probeKill_);
  // Not at once: the handler must not run before start() has returned.
  loop_.post([weak = std::weak_ptr<Attempt>(attempt)] {
    if (const auto self = weak.lock()) {
      self->begin();
    }
  });
  // Last, for all of that may throw.
  attempt->onEnd(std::move(handler));
  attempt_ = std::move(attempt);
}

void Connector::cancel() noexcept {
  if (const auto attempt = std::move(attempt_)) {
    attempt->cancel();
  }
}

}  // namespace rlock::detail::net
