// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/executor/call_room.hpp>
#include <rlock/detail/executor/call_words.hpp>
#include <rlock/detail/executor/lost_requests.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/error.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// The outcome of a call.
struct Outcome {
  enum class Kind : std::uint8_t {
    replied,  ///< Call::reply() is the answer, no error
    failed,   ///< not executed, unless `maybeExecuted`; `error` says why
    unknown,  ///< executed, or not, or still to be; Request::session() says on which connection
  };
  Kind kind = Kind::replied;
  std::optional<Error> error{};
  bool noTimeLeft = false;     ///< failed only because its time was over: there is a connection
  bool maybeExecuted = false;  ///< failed, but an earlier reply to it was lost
  bool answered = false;       ///< failed by the server's answer
};

/// One command with its arguments (CallWords), as often as it must be sent, and its delivery: what
/// may be done with it when its reply is lost, how long it goes on, and where it is sent.
///
/// A newly composed script counts as harmless, and does not go on without its caller; whether it
/// may be repeated stays as it was, so each function that composes one says that.
///
/// **Thread safety:** One thread at a time: the one that composes it until it is sent, and from
/// then on the Dispatcher and its nodes, until finished().
class Call : public CallWords {
 public:
  /// The harm that is done if the server executes the request after it was given up.
  using Late = LostRequests::Late;

  /// Composes an ordinary command.
  void setCommand(std::initializer_list<std::string_view> argv) {
    beginCommand(argv);
    setLate(Late::harmless);
  }
  /// Composes a script. Its keys and arguments follow by addArgument(), keys first.
  void setScript(const lua::Script& script, std::size_t keys) {
    beginScript(script, keys);
    behindText_ = false;
    goesOn_ = false;
    setLate(Late::harmless);
  }

  /// May be sent again when its reply was lost.
  void setRepeatable(bool repeatable) noexcept { repeatable_ = repeatable; }
  [[nodiscard]] bool repeatable() const noexcept { return repeatable_; }

  /// After it was composed. A request that is not harmless goes out only on a connection that can
  /// be killed, and once it is lost nothing is sent after it before that connection is known to be
  /// dead.
  void setLate(Late late) noexcept {
    late_ = late;
    setOnlyIfKillable(late != Late::harmless);
  }
  [[nodiscard]] Late late() const noexcept { return late_; }

  /// Goes on while the server lets nobody in or refuses it, until its time is over: nobody waits
  /// for the answer, and what it ends must not stay.
  void setPersistent(bool persistent) noexcept { persistent_ = persistent; }

  /// Once it was sent, it goes out again at once when the server asks for the script's text or
  /// names another node, also past its time: over a slow network a call of little patience would
  /// never get through.
  void setFollowsUp(bool followsUp) noexcept { followsUp_ = followsUp; }

  /// It gives back what nobody else can give back: its sender goes on with it when its caller has
  /// left.
  void setGoesOn(bool goesOn) noexcept { goesOn_ = goesOn; }
  [[nodiscard]] bool goesOn() const noexcept { return goesOn_; }

  /// Another call's lost request was about this one, too: what is sent for this one waits, as for a
  /// lost request of its own, until that can do no harm. Loop thread.
  /// @param late  the harm
  void shareLoss(const Call& lost, Late late) {
    makeRoom();
    if (lost.room_) {
      room_->lost.share(lost.room_->lost, late);
    }
  }

  /// Where it is sent, which is the Router's decision.
  /// @param kept  the node's owner, where nodes come and go
  void setNode(Node& node, std::shared_ptr<Node> kept = nullptr) noexcept {
    room_->node = &node;
    room_->nodeKept = std::move(kept);
  }

 protected:
  Call() = default;

  /// No request is under way, and none will be for a while: gives back the memory of the last one.
  /// Requests that were lost stay known.
  void rest() noexcept {
    if (room_ && room_->lost.empty()) {
      setReplyPlace(nullptr);
      room_.reset();
    }
  }

  /// Composes the request at hand, for the first time or once more, on the loop thread: with a
  /// tombstone if that is what makes it harmless, as what comes after the one that was lost
  /// otherwise.
  virtual void recompose(bool /*tombstone*/) {}

  /// Called on the loop thread each time before the dispatcher sends it from there: a moment may
  /// have passed since start(), and with it what the request was for. It may compose the request
  /// anew. False: there is nothing left to send, and the call fails with `cancelled`.
  /// @param now  the time, which is before the server can execute it
  virtual bool aboutToSend(std::chrono::steady_clock::time_point /*now*/) { return true; }

  /// Called once on the loop thread for each Dispatcher::start() and resume().
  virtual void finished(Outcome outcome) noexcept = 0;

 private:
  friend class ClusterRouter;
  friend class Dispatcher;
  friend class Node;
  friend class ParkedCalls;
  friend class ScriptSupply;

  using Wait = CallRoom::Wait;

  void completed() noexcept final;
  /// A call that nobody waits for goes on until what was lost before it can do no harm.
  void outlastLost() noexcept;

  Late late_ = Late::harmless;
  bool repeatable_ = false;
  bool persistent_ = false;
  bool unsent_ = false;      // composed anew, so that the reply that stands there is to another one
  bool behindText_ = false;  // repeated by hash behind the text that another brings
  bool followsUp_ = false;
  bool goesOn_ = false;
  bool outdated_ = false;  // the words are still those of the request before
};

}  // namespace rlock::detail
