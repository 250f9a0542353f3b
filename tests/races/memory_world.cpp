// SPDX-License-Identifier: Apache-2.0
#include "races/memory_world.hpp"

#include "net/loop_env.hpp"
#include "objects/client_core.hpp"
#include "races/schedule.hpp"
#include <rlock/detail/net/pending_requests.hpp>
#include <rlock/detail/net/request_word.hpp>

#include <chrono>
#include <deque>
#include <set>
#include <utility>

namespace rlock::races {

using detail::Env;
using detail::Reply;
namespace net = detail::net;

RaceServer::RaceServer()
    : model_([] {
        return std::chrono::duration_cast<std::chrono::microseconds>(
                   std::chrono::system_clock::now().time_since_epoch())
            .count();
      }) {
  model_.onMessage([this](ClientId subscriber, std::string_view channel, std::string_view payload) {
    if (const auto listener = listeners_.find(subscriber); listener != listeners_.end()) {
      published_.push_back({listener->second, std::string(channel), std::string(payload)});
    }
  });
  own_ = model_.connect();
}

RaceServer::ClientId RaceServer::connect() {
  const std::lock_guard lock(mutex_);
  return model_.connect();
}

RaceServer::ClientId RaceServer::connectListener(Listener listener) {
  const std::lock_guard lock(mutex_);
  const ClientId id = model_.connect();
  listeners_[id] = std::make_shared<Listener>(std::move(listener));
  return id;
}

void RaceServer::disconnect(ClientId client) {
  const std::lock_guard lock(mutex_);
  model_.disconnect(client);
  listeners_.erase(client);
}

bool RaceServer::connected(ClientId client) {
  const std::lock_guard lock(mutex_);
  return model_.connected(client);
}

std::string RaceServer::runId() {
  const std::lock_guard lock(mutex_);
  return std::string(model_.runId());
}

Reply RaceServer::execute(ClientId client, std::span<const std::string_view> argv) {
  std::vector<Message> published;
  Reply reply;
  {
    const std::lock_guard lock(mutex_);
    reply = model_.execute(client, argv);
    published.swap(published_);
  }
  for (Message& message : published) {
    (*message.to)(std::move(message.channel), std::move(message.payload));
  }
  return reply;
}

Reply RaceServer::command(std::initializer_list<std::string_view> argv) {
  return execute(own_, std::span(argv.begin(), argv.size()));
}

std::string RaceServer::dump() {
  const std::lock_guard lock(mutex_);
  return model_.dump();
}

namespace {

/// Executes each request where it is submitted, or on the loop thread later on, in their order.
class RaceTransport final : public net::CommandTransport,
                            public std::enable_shared_from_this<RaceTransport> {
 public:
  RaceTransport(std::shared_ptr<Env> env,
                RaceServer& server,
                Weather& weather,
                net::LinkEvents& events)
      : env_(std::move(env)), server_(server), weather_(weather), events_(events) {}

  void open() override { connect(); }

  void close() noexcept override {
    net::PendingRequests::Ended ended;
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      up_ = false;
      failLocked(ended);
    }
    tell(ended);
  }

  bool submit(net::Request& request, std::span<const std::string_view> argv, Mode mode) override {
    net::PendingRequests::Ended ended;
    {
      const std::lock_guard lock(mutex_);
      if (!up_ || !pending_.accepts(request)) {
        return false;
      }
      Command command;
      for (const std::string_view argument : argv) {
        command.emplace_back(argument);
      }
      ++commands_;
      pending_.append(request, 1, mode, env_->now());
      pending_.offer(1);
      waiting_.push_back(std::move(command));
      if (chance(weather_.lost)) {
        breakLocked(ended);
      } else if (waiting_.size() > 1 || chance(weather_.late)) {
        env_->post([self = shared_from_this()] { self->runWaiting(); });
      } else {
        runLocked(ended);
      }
    }
    tell(ended);
    return true;
  }

  Awaited await(net::Request& request, Clock::time_point deadline) override {
    using Next = net::RequestWord::Next;
    for (;;) {
      std::uint32_t word = 0;
      const Next next = net::RequestWord::next(request, word);
      if (next == Next::done) {
        return Awaited::complete;
      }
      const bool interrupted = next == Next::interrupt;
      if (interrupted || env_->now() >= deadline) {
        const std::lock_guard lock(mutex_);
        if (pending_.leave(request)) {
          return interrupted ? Awaited::interrupted : Awaited::timedOut;
        }
        std::this_thread::yield();
        continue;
      }
      env_->sleep(net::RequestWord::word(request), word, deadline);
    }
  }

  void distrust() noexcept override {
    const std::lock_guard lock(mutex_);
    pending_.distrust();
  }

  void abandon(Clock::time_point /*since*/, Errc /*errc*/, const char* /*what*/) noexcept override {
    net::PendingRequests::Ended ended;
    {
      const std::lock_guard lock(mutex_);
      if (!up_) {
        return;
      }
      breakLocked(ended);
    }
    tell(ended);
  }

  [[nodiscard]] bool up() const noexcept override { return up_; }
  [[nodiscard]] Totals totals() const noexcept override { return {commands_, connections_}; }

 private:
  using Command = std::vector<std::string>;

  void connect() {
    auto session = std::make_shared<net::ServerSession>();
    session->node = "memory";
    session->address = "memory";
    session->canKill = true;
    session->runId = server_.runId();
    session->clientId = server_.connect();
    {
      const std::lock_guard lock(mutex_);
      if (closed_) {
        return;
      }
      session_ = session;
      pending_.begin(true, env_->now());
      ++connections_;
      up_ = true;
    }
    events_.onUp(session);
  }

  void runWaiting() {
    net::PendingRequests::Ended ended;
    {
      const std::lock_guard lock(mutex_);
      if (up_) {
        runLocked(ended);
      }
    }
    tell(ended);
  }

  void runLocked(net::PendingRequests::Ended& ended) {
    while (!waiting_.empty()) {
      const Command command = std::move(waiting_.front());
      waiting_.pop_front();
      pending_.take(run(session_->clientId, command), env_->now(), ended);
    }
  }

  Reply run(RaceServer::ClientId client, const Command& command) {
    const std::vector<std::string_view> argv(command.begin(), command.end());
    return server_.execute(client, argv);
  }

  /// The connection breaks under the requests that wait: the server has run some of them, and runs
  /// the others later unless the connection is killed before.
  void breakLocked(net::PendingRequests::Ended& ended) {
    const RaceServer::ClientId client = session_->clientId;
    while (!waiting_.empty() && draw() % 2 == 0) {
      static_cast<void>(run(client, waiting_.front()));
      waiting_.pop_front();
    }
    up_ = false;
    failLocked(ended);
    env_->post([self = shared_from_this(), client, rest = std::exchange(waiting_, {})] {
      const bool first = draw() % 2 == 0;
      if (!first) {
        self->again();
      }
      for (const Command& command : rest) {
        if (self->server_.connected(client)) {
          static_cast<void>(self->run(client, command));
        }
      }
      self->server_.disconnect(client);
      if (first) {
        self->again();
      }
    });
  }

  void again() {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) {
        return;
      }
    }
    events_.onDown(Error(Errc::connectionFailed, "the connection was cut"));
    connect();
  }

  void failLocked(net::PendingRequests::Ended& ended) noexcept { pending_.fail(session_, ended); }

  void tell(net::PendingRequests::Ended& ended) noexcept {
    while (const auto request = ended.awaited.pop()) {
      if (net::RequestWord::finish(*request)) {
        env_->wakeOne(&net::RequestWord::word(*request));
      }
    }
    while (auto request = ended.background.pop()) {
      if (closed_) {
        net::PendingRequests::complete(*request);
      } else {
        env_->post([request] { net::PendingRequests::complete(*request); });
      }
    }
  }

  const std::shared_ptr<Env> env_;
  RaceServer& server_;
  Weather& weather_;
  net::LinkEvents& events_;
  std::mutex mutex_;
  std::atomic<bool> closed_{false};
  std::atomic<bool> up_{false};
  std::atomic<std::uint64_t> commands_{0};
  std::atomic<std::uint64_t> connections_{0};
  std::shared_ptr<const net::ServerSession> session_;
  net::PendingRequests pending_{std::chrono::milliseconds(3000)};
  std::deque<Command> waiting_;
};

class RaceSubscriptions final : public net::SubscriptionTransport {
 public:
  RaceSubscriptions(std::shared_ptr<Env> env, RaceServer& server, net::PubSubEvents& events)
      : state_(std::make_shared<State>(std::move(env), server, events)) {
    state_->client = server.connectListener(
        [weak = std::weak_ptr(state_)](std::string channel, std::string payload) {
          if (const auto state = weak.lock()) {
            state->env->post([weak, channel = std::move(channel), payload = std::move(payload)] {
              const auto here = weak.lock();
              if (here && !here->closed && here->channels.contains(channel)) {
                here->events.onMessage(channel, payload);
              }
            });
          }
        });
  }
  ~RaceSubscriptions() override { close(); }

  void subscribe(std::string channel) override {
    state_->channels.insert(channel);
    state_->env->post([weak = std::weak_ptr(state_), channel = std::move(channel)] {
      const auto state = weak.lock();
      if (!state || state->closed || !state->channels.contains(channel)) {
        return;
      }
      state->say("SUBSCRIBE", channel);
      state->events.onSubscribed(channel);
    });
  }

  void unsubscribe(const std::string& channel) override {
    if (state_->channels.erase(channel) != 0) {
      state_->say("UNSUBSCRIBE", channel);
    }
  }

  void close() noexcept override {
    if (!std::exchange(state_->closed, true)) {
      state_->server.disconnect(state_->client);
    }
  }

 private:
  // Loop thread only, but for the client.
  struct State {
    State(std::shared_ptr<Env> theEnv, RaceServer& theServer, net::PubSubEvents& theEvents)
        : env(std::move(theEnv)), server(theServer), events(theEvents) {}

    void say(std::string_view verb, std::string_view channel) const {
      const std::array<std::string_view, 2> argv{verb, channel};
      static_cast<void>(server.execute(client, argv));
    }

    const std::shared_ptr<Env> env;
    RaceServer& server;
    net::PubSubEvents& events;
    RaceServer::ClientId client = 0;
    std::set<std::string> channels;
    bool closed = false;
  };

  const std::shared_ptr<State> state_;
};

}  // namespace

Client memoryClient(RaceServer& server, Weather& weather, const Options& options) {
  const auto log = std::make_shared<const detail::Logger>(options.log, options.logLevel);
  const auto loop = net::Loop::createOwned("races");
  const std::shared_ptr<Env> env = std::make_shared<net::LoopEnv>(loop);
  net::Transports transports;
  transports.commands = [env, &server, &weather](net::LinkEvents& events) {
    return std::make_shared<RaceTransport>(env, server, weather, events);
  };
  transports.subscriptions = [env, &server](net::PubSubEvents& events) {
    return std::make_unique<RaceSubscriptions>(env, server, events);
  };
  auto core = std::make_shared<detail::ClientCore>(
      detail::ClientWorld{env, transports, true}, detail::newUuid(), options, log);
  core->open(options);
  return detail::ClientAccess::make(std::move(core));
}

}  // namespace rlock::races
