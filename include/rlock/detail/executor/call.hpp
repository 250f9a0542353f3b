// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/block_cache.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/executor/argument_list.hpp>
#include <rlock/detail/executor/lost_requests.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/net/hash_slot.hpp>
#include <rlock/detail/net/request.hpp>
#include <rlock/error.hpp>

#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

class Node;
class ParkedCalls;

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

/// One command with its arguments, as often as it must be sent. Argument bytes are not copied: they
/// must stay until the call is finished; short ones made on the way live in the call's own store.
///
/// **Thread safety:** One thread at a time.
class Call : public net::Request {
 public:
  /// An ordinary command.
  void setCommand(std::initializer_list<std::string_view> argv) {
    script_ = nullptr;
    makeRoom();
    // The words may lie in the call's own store.
    room_->argv.clear();
    for (const std::string_view word : argv) {
      room_->argv.push_back(word);
    }
    asText_ = false;
    despiteLimit_ = false;
    room_->publishAt = 0;
    room_->slot.reset();
    setLate(Late::harmless);
  }

  /// A script. Its keys and arguments follow by addArgument(), keys first.
  void setScript(const lua::Script& script, std::size_t keys) {
    makeRoom();
    script_ = &script;
    asText_ = false;
    freesMemory_ = false;
    despiteLimit_ = false;
    behindText_ = false;
    goesOn_ = false;
    room_->idempotencyKeyAt = 0;
    room_->publishAt = 0;
    room_->slot.reset();
    room_->stored = 0;
    room_->spilled.clear();
    room_->argv.clear();
    setLate(Late::harmless);
    room_->argv.push_back("EVALSHA");
    room_->argv.push_back(script.sha1);
    addNumber(static_cast<std::int64_t>(keys));
  }
  void addArgument(std::string_view bytes) { room_->argv.push_back(bytes); }
  void addNumber(std::int64_t number) {
    constexpr std::string_view kDigits = "0123456789";
    if (number >= 0 && number < 10) {
      room_->argv.push_back(kDigits.substr(static_cast<std::size_t>(number), 1));
      return;
    }
    std::array<char, 20> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    room_->argv.push_back(store(std::string_view(digits.data(), end)));
  }

  /// The command with which the script announces something, which is the server's matter: see
  /// setPublish().
  void addPublish() {
    room_->publishAt = room_->argv.size();
    room_->argv.push_back("PUBLISH");
  }
  /// Before it is sent. The command's name must stay.
  void setPublish(std::string_view command) noexcept {
    if (room_->publishAt != 0) {
      room_->argv[room_->publishAt] = command;
    }
  }

  /// The first key; empty without one.
  [[nodiscard]] std::string_view key() const noexcept {
    const std::size_t at = script_ != nullptr ? 3 : 1;
    const auto words = argv();
    return at < words.size() ? words[at] : std::string_view();
  }
  /// For a composed command without a key: the node that has this slot is asked.
  void setSlot(std::uint16_t slot) noexcept { room_->slot = slot; }
  [[nodiscard]] std::uint16_t slot() const noexcept {
    return room_ && room_->slot ? *room_->slot : net::hashSlot(key());
  }

  /// Copies a text into the call, where it stays until the call is composed anew.
  std::string_view store(std::string_view text) {
    makeRoom();
    if (text.size() > room_->store.size() - room_->stored) {
      room_->spilled.push_back(std::make_unique<std::string>(text));
      return *room_->spilled.back();
    }
    char* const place = room_->store.data() + room_->stored;
    text.copy(place, text.size());
    room_->stored += text.size();
    return {place, text.size()};
  }

  /// Something that the arguments refer to, or that is in use while the call is under way.
  void keep(std::shared_ptr<const void> owned) noexcept { room_->kept = std::move(owned); }

  /// Sends the script's text instead of its hash from here on.
  void sendText() noexcept {
    if (script_ != nullptr && !asText_) {
      asText_ = true;
      room_->argv[0] = "EVAL";
      room_->argv[1] = script_->body;
    }
  }
  /// Takes sendText() back: the text could not be sent.
  void sendHash() noexcept {
    if (script_ != nullptr && asText_) {
      asText_ = false;
      despiteLimit_ = false;
      room_->argv[0] = "EVALSHA";
      room_->argv[1] = script_->sha1;
    }
  }
  /// The script gives memory back in the end, although it may write before.
  void setFreesMemory(bool frees) noexcept { freesMemory_ = frees; }
  /// Sends the text in a form that may write at the memory limit. False when that does not apply or
  /// was done already.
  ///
  /// The limit stops only a script's first write. So the text begins with a write that needs no
  /// memory and fails: an expiry that is no number changes nothing, whatever the key holds.
  /// (Redis 7 has a flag for this, allow-oom, which older servers take for a syntax error.)
  bool sendDespiteMemoryLimit() {
    if (script_ == nullptr || !freesMemory_ || despiteLimit_) {
      return false;
    }
    despiteLimit_ = true;
    sendText();
    room_->argv[1] = store("redis.pcall('pexpire', KEYS[1], '')\n" + std::string(script_->body));
    return true;
  }
  [[nodiscard]] bool sendsText() const noexcept { return asText_; }
  [[nodiscard]] std::span<const std::string_view> argv() const noexcept {
    return room_ ? room_->argv.words() : std::span<const std::string_view>();
  }

  /// May be sent again when its reply was lost.
  void setRepeatable(bool repeatable) noexcept { repeatable_ = repeatable; }
  [[nodiscard]] bool repeatable() const noexcept { return repeatable_; }

  /// The harm that is done if the server executes the request after it was given up.
  using Late = LostRequests::Late;
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

  /// Once it was sent, it goes out again at once when the server asks for the script's text, also
  /// past its time: over a slow network a call of little patience would never get through.
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

  /// Adds the idempotency key of a numbered request, which is the last key, with the number and for
  /// how many ms the script remembers it.
  void addIdempotencyKey(std::string_view key,
                         std::uint64_t number,
                         std::chrono::milliseconds life) {
    room_->idempotencyKeyAt = room_->argv.size();
    addArgument(key);
    addNumber(static_cast<std::int64_t>(number));
    addNumber(life.count());
  }
  /// The key, the number and the life; empty without an idempotency key.
  [[nodiscard]] std::span<const std::string_view> idempotencyKey() const noexcept {
    return !room_ || room_->idempotencyKeyAt == 0 ? std::span<const std::string_view>()
                                                  : argv().subspan(room_->idempotencyKeyAt, 3);
  }
  /// From here on the request is executed only while its idempotency key is there.
  void setAgain() {
    std::string_view& number = room_->argv[room_->idempotencyKeyAt + 1];
    if (!number.ends_with('!')) {
      number = store(std::string(number) + '!');
    }
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

  /// Composes the request at hand once more, on the loop thread: with a tombstone if that is what
  /// makes it harmless, as what comes after the one that was lost otherwise.
  virtual void recompose(bool /*tombstone*/) {}

  /// Called on the loop thread each time before the dispatcher sends it from there: a moment may
  /// have passed since start(), and with it what the request was for. It may compose the request
  /// anew. False: there is nothing left to send, and the call fails with `cancelled`.
  virtual bool aboutToSend() { return true; }

  /// Called once on the loop thread for each Dispatcher::start() and resume().
  virtual void finished(Outcome outcome) noexcept = 0;

 private:
  friend class ClusterRouter;
  friend class Dispatcher;
  friend class Node;
  friend class ParkedCalls;
  friend class ScriptSupply;

  enum class Wait : std::uint8_t { pause, link, kill };

  /// Its members are needed only while a request is composed or under way. It is made when the
  /// first one is composed, so that nothing after that needs memory for it.
  struct Room final : FromBlockCache<Room> {
    std::size_t idempotencyKeyAt = 0;
    std::size_t publishAt = 0;
    std::optional<std::uint16_t> slot{};
    ArgumentList argv{};
    std::array<char, 128> store;  // as far as `stored`
    std::size_t stored = 0;
    std::vector<std::unique_ptr<std::string>> spilled{};
    std::shared_ptr<const void> kept{};
    Reply reply{};

    // While the dispatcher has it. The node is chosen before it is sent; the rest on the loop
    // thread only.
    Node* node = nullptr;
    Node* answeredBy = nullptr;        // once it is finished
    std::shared_ptr<Node> nodeKept{};  // where nodes come and go
    std::chrono::steady_clock::time_point sendBefore{};
    int attempts = 0;
    int redirections = 0;
    bool asking = false;  // its node has the key ahead of the slot
    bool maybeExecuted = false;
    LostRequests lost{};  // from one request of the call to the next
    /// The script whose text it brings, for others, too, who wait for that; null: none. By the time
    /// that it ends it may have been composed anew for another script.
    const lua::Script* brings = nullptr;
    std::unique_ptr<Timer> timer{};
    ParkedCalls* parkedIn = nullptr;
    IntrusivePtr<Call> parkedSelf{};  // while it is parked: the list's reference
    Call* parkedBefore = nullptr;
    Call* parkedAfter = nullptr;
    std::uint64_t parkedNumber = 0;
    Wait waitsFor = Wait::pause;
    std::optional<Error> lastError{};
  };

  void makeRoom() {
    if (!room_) {
      room_ = std::make_unique_for_overwrite<Room>();
      setReplyPlace(&room_->reply);
    }
  }
  void completed() noexcept final;
  /// A call that nobody waits for goes on until what was lost before it can do no harm.
  void outlastLost() noexcept;

  const lua::Script* script_ = nullptr;
  bool asText_ = false;
  bool repeatable_ = false;
  bool freesMemory_ = false;
  bool persistent_ = false;
  bool unsent_ = false;  // composed anew, so that the reply that stands there is to another one
  Late late_ = Late::harmless;
  bool despiteLimit_ = false;
  bool behindText_ = false;  // repeated by hash behind the text that another brings
  bool followsUp_ = false;
  bool goesOn_ = false;
  std::unique_ptr<Room> room_;
};

}  // namespace rlock::detail
