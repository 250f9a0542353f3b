// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/base/one_shot.hpp>
#include <rlock/detail/engine/call_step.hpp>
#include <rlock/detail/engine/scripted_object.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/detail/executor/ping.hpp>
#include <rlock/error.hpp>
#include <rlock/log.hpp>
#include <rlock/result.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// Questions to the server that are about no lock: a ping, and what is found there. Each is asked
/// on the caller's thread or in the background, like one about a lock, and takes no gate.
///
/// **Thread safety:** Immutable, safe from any thread.
class ServerQuestions {
 public:
  using PingTime = std::chrono::nanoseconds;
  using PingHandler = UniqueFunction<void(Result<PingTime>)>;
  using DoneHandler = UniqueFunction<void(Result<void>)>;

  explicit ServerQuestions(std::shared_ptr<LockEngine> engine)
      // Of no name, so that errors name none.
      : object_(std::move(engine), std::make_shared<LockScripts>("")) {}

  /// How long one request and its reply take, without what it waits for before it is sent.
  Result<PingTime> ping() const;
  void pingAsync(PingHandler handler) const;

  ///@{
  /// As Dispatcher::authenticate(), from any thread.
  Result<void> authenticate() const;
  void authenticateAsync(DoneHandler handler) const;
  ///@}

 private:
  struct Ping {
    std::function<void(Call&, const LockScripts&, std::string_view)> compose;
    std::function<std::optional<PingTime>(const Reply&)> parse;
  };
  struct Answer;

  [[nodiscard]] Ping makePing() const;
  [[nodiscard]] std::optional<Error> refuseToAuthenticate(bool blocking) const;
  void authenticateOnLoop(DoneHandler done) const;

  const ScriptedObject object_;
};

inline ServerQuestions::Ping ServerQuestions::makePing() const {
  // The call is there when its reply is read.
  auto sent = std::make_shared<const Call*>(nullptr);
  return {[sent](Call& call, const LockScripts& /*none*/, std::string_view /*owner*/) {
            composePing(call);
            *sent = &call;
          },
          [sent, engine = object_.enginePtr()](const Reply& reply) -> std::optional<PingTime> {
            if (!isPong(reply)) {
              return std::nullopt;
            }
            return engine->now() - (*sent)->submittedAt();
          }};
}

inline Result<ServerQuestions::PingTime> ServerQuestions::ping() const {
  const Ping ping = makePing();
  return object_.ask<PingTime>({}, ping.compose, ping.parse);
}

inline void ServerQuestions::pingAsync(PingHandler handler) const {
  const Ping ping = makePing();
  object_.askAsync<PingTime>({}, std::move(handler), ping.compose, ping.parse);
}

inline std::optional<Error> ServerQuestions::refuseToAuthenticate(bool blocking) const {
  std::optional<Error> why = object_.engine().refuse(blocking);
  if (!why && !object_.engine().options().credentials) {
    why.emplace(Errc::invalidArgument,
                "there are no other credentials: Options::credentials is empty");
  }
  return why;
}

/// A handler that is told of the end of the loop if it hears nothing else.
struct ServerQuestions::Answer {
  ~Answer() {
    if (handler) {
      engine->callbacks().reject(
          [handler = std::move(handler)]() mutable { handler(Result<void>(unansweredError())); });
    }
  }

  std::shared_ptr<LockEngine> engine;
  DoneHandler handler;
};

inline void ServerQuestions::authenticateOnLoop(DoneHandler done) const {
  const std::shared_ptr<LockEngine>& engine = object_.enginePtr();
  auto answer = std::make_shared<Answer>();
  answer->engine = engine;
  answer->handler = std::move(done);
  engine->dispatcher().post([answer] {
    answer->engine->dispatcher().authenticate([answer](const Result<void>& result) {
      if (!result.has_value()) {
        ifThereIsMemory([&] {
          answer->engine->log().write(
              LogLevel::warning,
              std::string("the connections go on with the old credentials: ") +
                  result.error().what());
        });
      }
      std::exchange(answer->handler, nullptr)(result);
    });
  });
}

inline Result<void> ServerQuestions::authenticate() const {
  if (auto why = refuseToAuthenticate(true)) {
    return object_.describe(std::move(*why));
  }
  const LockEngine& engine = object_.engine();
  auto outcome = std::make_shared<OneShot<Result<void>>>(engine.env());
  authenticateOnLoop([outcome](Result<void> result) { outcome->put(std::move(result)); });
  if (!outcome->waitUntil(engine.now() + engine.callTimeout())) {
    return object_.describe(Error(Errc::timedOut, "the server has not answered in time"));
  }
  return outcome->take();
}

inline void ServerQuestions::authenticateAsync(DoneHandler handler) const {
  if (auto why = refuseToAuthenticate(false)) {
    object_.reject<void>(std::move(*why), {}, std::move(handler));
    return;
  }
  authenticateOnLoop(
      [engine = object_.enginePtr(), handler = std::move(handler)](Result<void> result) mutable {
        engine->callbacks().deliver(
            [handler = std::move(handler), result = std::move(result)]() mutable {
              handler(std::move(result));
            });
      });
}

}  // namespace rlock::detail
