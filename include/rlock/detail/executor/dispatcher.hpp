// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/cluster_router.hpp>
#include <rlock/detail/executor/live_nodes.hpp>
#include <rlock/detail/executor/node.hpp>
#include <rlock/detail/executor/router.hpp>
#include <rlock/detail/executor/single_router.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/error.hpp>
#include <rlock/log.hpp>
#include <rlock/options.hpp>
#include <rlock/result.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// The way to the servers, for the engine: brings calls to the node that has their keys, which its
/// Router knows. Its users name keys and channels, never nodes.
///
/// Two ways: directly, on the calling thread, for the common case that everything works; or through
/// the loop thread, which waits for a connection, repeats what the server did not execute, and
/// gives up at a point in time. A direct call that meets trouble is passed to the loop with
/// resume().
///
/// **Thread safety:** direct(), await(), start(), startAhead(), resume(), post() and the observers
/// from any thread; the rest on the loop thread.
class Dispatcher final : public std::enable_shared_from_this<Dispatcher> {
 public:
  using Clock = std::chrono::steady_clock;
  using CallPtr = IntrusivePtr<Call>;
  using Direct = Node::Direct;
  using Mode = Node::Mode;
  using Counters = Router::Counters;

  Dispatcher(std::shared_ptr<Env> env,
             const net::Transports& transports,
             const Options& options,
             std::shared_ptr<const Logger> log,
             DispatcherEvents& events);

  /// Starts connecting; `ready` is called on the loop when the first attempt has succeeded or
  /// failed.
  void open(UniqueFunction<void(Result<void>)> ready) { router_->open(std::move(ready)); }
  /// Ends all connections; calls under way finish with `closed`.
  void close() noexcept { router_->close(); }

  /// Sends on the calling thread, which then takes the reply with await(). False: no connection, or
  /// a request of the call that was lost can still do harm, and start() looks at that.
  /// @param mode  awaited: it is another thread that takes the reply, when it has woken up
  /// @param now   `time_point()`: the clock is read
  bool direct(Call& call, Mode mode = Mode::awaitedAtOnce, Clock::time_point now = {});
  /// Waits for a direct call. Sends a script's text on this thread if the server wants it.
  Direct await(Call& call, Clock::time_point deadline) {
    return call.room_->node->await(call, deadline);
  }
  /// Why await() said `failed`.
  [[nodiscard]] Error takeError(Call& call) const { return call.room_->node->takeError(call); }

  /// Sends in the background; Call::finished() has the outcome. The call is not sent after
  /// `sendBefore`.
  void start(CallPtr call, Clock::time_point sendBefore);
  /// As start(), for a request that follows the one that the call has words of, with the same key.
  /// It is composed, by Call::recompose(), when it can be sent: a call that is persistent waits for
  /// the memory. Throws nothing. Loop thread.
  void startNext(const CallPtr& call, Clock::time_point sendBefore);
  /// As start(), but where there is a connection the call is ahead of whatever this thread sends
  /// after it.
  void startAhead(const CallPtr& call, Clock::time_point sendBefore);
  /// As start(), after the call has ended in trouble or was lost and is to be judged.
  void resume(CallPtr call, Clock::time_point sendBefore);

  /// Asks who has the write of a call that was answered: the replicas of the server that answered
  /// it, as the ticket's policy says. Loop thread.
  static void acknowledge(Call& call, AckTicket ticket);
  /// The call was answered by a server that takes no writes, which the answer does not say as a
  /// whole: another server is looked for. Called at the end of the call. Loop thread.
  static void writesRefused(Call& call) noexcept;
  /// Nobody waits for acknowledgements any more: the client is being closed. Loop thread.
  void endAcks() { router_->endAcks(); }

  /// Whether requests must carry a tombstone, because some server does not let the
  /// client kill the connection on which one was lost.
  /// A guess before there is a connection, and where it changes: a call that was composed for
  /// another is composed again before it goes out.
  [[nodiscard]] bool needsTombstone() const noexcept { return router_->needsTombstone(); }
  /// The node that calls about a key go to, for messages.
  [[nodiscard]] std::string node(std::string_view key) const { return router_->nodeName(key); }

  using Place = Router::Place;
  /// As Router::placeOf().
  [[nodiscard]] Place placeOf(std::string_view key) const { return router_->placeOf(key); }
  /// As Router::parts().
  [[nodiscard]] std::vector<std::uint16_t> parts() const { return router_->parts(); }

  using Reach = Router::Reach;
  void subscribe(std::string channel, Reach reach = Reach::slot) {
    router_->subscribe(std::move(channel), reach);
  }
  void unsubscribe(const std::string& channel) { router_->unsubscribe(channel); }

  [[nodiscard]] const LiveNodes& liveNodes() const noexcept { return *live_; }
  /// Authenticates all connections anew, with what Options::credentials gives now. `done` is called
  /// when the servers have answered, with the first refusal if there was one. Loop thread.
  void authenticate(UniqueFunction<void(Result<void>)> done);

  void post(UniqueFunction<void()> function) { env_->post(std::move(function)); }
  [[nodiscard]] bool onLoopThread() const noexcept { return env_->onLoopThread(); }

  [[nodiscard]] Counters counters() const noexcept { return router_->counters(); }

 private:
  static std::unique_ptr<Router> makeRouter(NodeTerms terms,
                                            const net::Transports& transports,
                                            const Options& options,
                                            DispatcherEvents& events);
  static void begin(Call& call, Clock::time_point sendBefore);
  void send(const CallPtr& call) {
    Node::guarded(call, [&] { router_->resend(call); });
  }

  const std::shared_ptr<Env> env_;
  const std::shared_ptr<LiveNodes> live_;
  const std::unique_ptr<Router> router_;
};

inline Dispatcher::Dispatcher(std::shared_ptr<Env> env,
                              const net::Transports& transports,
                              const Options& options,
                              std::shared_ptr<const Logger> log,
                              DispatcherEvents& events)
    : env_(std::move(env)),
      live_(std::make_shared<LiveNodes>(
          log,
          wantsOf(options),
          [&events](bool connected) { events.connectionChanged(connected); })),
      router_(makeRouter(
          NodeTerms(env_, options, std::move(log), live_), transports, options, events)) {}

inline std::unique_ptr<Router> Dispatcher::makeRouter(NodeTerms terms,
                                                      const net::Transports& transports,
                                                      const Options& options,
                                                      DispatcherEvents& events) {
  if (options.topology == Topology::cluster) {
    return std::make_unique<ClusterRouter>(std::move(terms), transports, options, events);
  }
  return std::make_unique<SingleRouter>(std::move(terms), transports, options, events);
}

inline bool Dispatcher::direct(Call& call, Mode mode, Clock::time_point now) {
  // Should the caller leave, the call must not be sent again on its behalf.
  begin(call, Clock::time_point::min());
  call.setSubmitTime(now);
  Node* const node = router_->route(call);
  return node != nullptr && call.room_->lost.empty() && node->submit(call, mode);
}

inline void Dispatcher::start(CallPtr call, Clock::time_point sendBefore) {
  if (env_->onLoopThread()) {
    begin(*call, sendBefore);
    send(call);
    return;
  }
  env_->post([self = shared_from_this(), call = std::move(call), sendBefore] {
    begin(*call, sendBefore);
    self->send(call);
  });
}

inline void Dispatcher::startNext(const CallPtr& call, Clock::time_point sendBefore) {
  begin(*call, sendBefore);
  call->outdated_ = true;
  send(call);
}

inline void Dispatcher::startAhead(const CallPtr& call, Clock::time_point sendBefore) {
  begin(*call, sendBefore);
  Node* const node = router_->route(*call);
  if (node == nullptr || !call->room_->lost.empty() || !node->sendAhead(*call)) {
    start(call, sendBefore);
  }
}

inline void Dispatcher::resume(CallPtr call, Clock::time_point sendBefore) {
  env_->post([self = shared_from_this(), call = std::move(call), sendBefore] {
    begin(*call, sendBefore);
    if (std::exchange(call->unsent_, false)) {
      // To another server, perhaps, which may know the script.
      call->sendHash();
      self->send(call);
    } else if (call->delivery() == net::Request::Delivery::pending) {
      self->send(call);
    } else {
      Node::guarded(call, [&] { call->room_->node->judge(call); });
    }
  });
}

inline void Dispatcher::authenticate(UniqueFunction<void(Result<void>)> done) {
  struct Round {
    UniqueFunction<void(Result<void>)> done;
    std::size_t pending = 0;
    std::optional<Error> refusal;
  };
  auto round = std::make_shared<Round>();
  round->done = std::move(done);
  // Two for each node, one more for this function itself. A node without a connection may be
  // getting one, with the credentials from before.
  const std::vector<Node*> nodes = router_->nodes();
  round->pending = 2 * nodes.size() + 1;
  const auto answered = [self = shared_from_this(), round](const Result<void>& answer) {
    if (!answer.has_value() && !round->refusal) {
      round->refusal = answer.error();
    }
    if (--round->pending > 0) {
      return;
    }
    // Nothing may get out of here: it may be the end of a request that calls.
    if (!round->refusal && !ifThereIsMemorySoon([&] { self->router_->renewSubscriptions(); })) {
      round->refusal = noMemory();
    }
    ifThereIsMemory(
        [&] { round->done(round->refusal ? Result<void>(*round->refusal) : Result<void>()); });
  };
  for (Node* const node : nodes) {
    node->link().authenticate(answered);
    node->acks().authenticate(answered);
  }
  answered(Result<void>());
}

inline void Dispatcher::acknowledge(Call& call, AckTicket ticket) {
  // A direct call still has its node.
  Node* const node = call.room_->node != nullptr ? call.room_->node : call.room_->answeredBy;
  if (node == nullptr) {
    ticket.done({false, 0, "no node is known that has it"});
    return;
  }
  node->acks().ask(call.submittedAt(), call.key(), std::move(ticket));
}

inline void Dispatcher::writesRefused(Call& call) noexcept {
  if (Node* const node = call.room_->node != nullptr ? call.room_->node : call.room_->answeredBy;
      node != nullptr) {
    node->writesRefused(call.submittedAt());
  }
}

inline void Dispatcher::begin(Call& call, Clock::time_point sendBefore) {
  call.outdated_ = false;
  call.room_->sendBefore = sendBefore;
  call.setSubmitTime({});
  call.room_->attempts = 0;
  call.room_->redirections = 0;
  call.room_->asking = false;
  call.room_->waitsFor = Call::Wait::pause;
  call.room_->lastError.reset();
  call.room_->maybeExecuted = false;
  call.outlastLost();
}

}  // namespace rlock::detail
