// SPDX-License-Identifier: Apache-2.0
#include "testing/memory_subscriptions.hpp"

#include <rlock/error.hpp>

#include <array>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::sim {

/// The connection, which outlives what asks for it by what is queued. Loop thread, but for what the
/// server tells.
class MemorySubscriptions::Line final : public MemoryPeer,
                                        public std::enable_shared_from_this<Line> {
 public:
  Line(std::shared_ptr<detail::Env> env,
       std::shared_ptr<MemoryServer> server,
       const Options& options,
       detail::net::PubSubEvents& events)
      : env_(std::move(env)),
        server_(std::move(server)),
        events_(events),
        redial_(*env_, options, [this] { dial(); }),
        thaw_(env_->makeTimer([this] { thaw(); })) {}

  void subscribe(std::string channel) {
    wanted_.insert(channel);
    if (connection_ != 0) {
      confirmSoon(std::move(channel));
    } else if (!std::exchange(dialling_, true)) {
      redial_.start();
    }
  }

  void unsubscribe(const std::string& channel) {
    if (wanted_.erase(channel) != 0 && connection_ != 0 && !answersLater(channel)) {
      say("UNSUBSCRIBE", channel);
    }
  }

  void close() noexcept {
    closed_ = true;
    redial_.stop();
    thaw_->disarm();
    wanted_.clear();
    later_.clear();
    if (const Number gone = std::exchange(connection_, 0); gone != 0) {
      server_->disconnect(gone);
    }
  }

  void broken(Number connection) override {
    env_->post([self = shared_from_this(), connection] { self->lose(connection); });
  }

  void thawed() override {
    env_->post([self = shared_from_this()] { self->thaw(); });
  }

  void heard(const std::string& channel, const std::string& payload) override {
    env_->post([self = shared_from_this(), channel, payload] {
      if (!self->closed_ && self->wanted_.contains(channel)) {
        self->events_.onMessage(channel, payload);
      }
    });
  }

 private:
  void dial() {
    dialling_ = false;
    if (closed_ || connection_ != 0 || wanted_.empty()) {
      return;
    }
    if (const auto until = server_->frozenUntil(); until > env_->now()) {
      dialling_ = true;
      redial_.start(until);
      return;
    }
    const auto made = server_->connect(weak_from_this());
    if (!made) {
      dialling_ = true;
      redial_.start();
      events_.onDown(problem("connection refused"));
      return;
    }
    connection_ = made->number;
    redial_.succeeded();
    events_.onUp();
    for (const std::string& channel : std::set(wanted_)) {
      confirmSoon(channel);
    }
  }

  void lose(Number connection) {
    if (closed_ || connection_ != connection) {
      return;
    }
    connection_ = 0;
    later_.clear();
    if (!wanted_.empty() && !std::exchange(dialling_, true)) {
      redial_.start();
    }
    events_.onDown(problem("the server closed the connection"));
  }

  /// An event never comes inside of a call.
  void confirmSoon(std::string channel) {
    env_->post([self = shared_from_this(), channel = std::move(channel)] {
      if (!self->closed_ && self->connection_ != 0 && self->wanted_.contains(channel) &&
          !self->answersLater(channel)) {
        self->confirm(channel);
      }
    });
  }

  void confirm(const std::string& channel) {
    if (say("SUBSCRIBE", channel)) {
      events_.onSubscribed(channel);
    }
  }

  /// Whether the server is frozen. The channel has its turn once it answers again.
  bool answersLater(const std::string& channel) {
    const auto until = server_->frozenUntil();
    if (until <= env_->now()) {
      return false;
    }
    later_.insert(channel);
    thaw_->armAt(until);
    return true;
  }

  /// Only what is wanted by now is asked for: in between nothing could be heard on any channel.
  void thaw() {
    for (const std::string& channel : std::exchange(later_, {})) {
      if (closed_ || connection_ == 0) {
        return;
      }
      if (answersLater(channel)) {
        continue;
      }
      if (wanted_.contains(channel)) {
        confirm(channel);
      } else {
        say("UNSUBSCRIBE", channel);
      }
    }
  }

  bool say(std::string_view verb, std::string_view channel) {
    const std::array<std::string_view, 2> argv{verb, channel};
    detail::Reply reply;
    return server_->execute(connection_, argv, reply) == MemoryServer::Fate::answered;
  }

  [[nodiscard]] Error problem(const char* what) const {
    ErrorContext context;
    context.node = server_->name();
    return Error(Errc::connectionFailed, what, std::move(context));
  }

  const std::shared_ptr<detail::Env> env_;
  const std::shared_ptr<MemoryServer> server_;
  detail::net::PubSubEvents& events_;
  MemoryRedial redial_;
  const std::unique_ptr<detail::Timer> thaw_;
  std::set<std::string> wanted_;
  std::set<std::string> later_;  ///< those that the frozen server has still to be told of
  Number connection_ = 0;
  bool dialling_ = false;
  bool closed_ = false;
};

MemorySubscriptions::MemorySubscriptions(std::shared_ptr<detail::Env> env,
                                         std::shared_ptr<MemoryServer> server,
                                         const Options& options,
                                         detail::net::PubSubEvents& events)
    : line_(std::make_shared<Line>(std::move(env), std::move(server), options, events)) {}

MemorySubscriptions::~MemorySubscriptions() {
  line_->close();
}

void MemorySubscriptions::subscribe(std::string channel) {
  line_->subscribe(std::move(channel));
}

void MemorySubscriptions::unsubscribe(const std::string& channel) {
  line_->unsubscribe(channel);
}

void MemorySubscriptions::close() noexcept {
  line_->close();
}

}  // namespace rlock::sim
