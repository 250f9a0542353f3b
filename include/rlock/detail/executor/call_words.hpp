// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/executor/call_room.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/net/hash_slot.hpp>
#include <rlock/detail/net/request.hpp>

#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// The words of a request: an ordinary command, or a script with its keys and arguments. The
/// request can be sent several times, and changes its form on the way: a script goes by its hash
/// until a server asks for its text.
///
/// Argument bytes are not copied: they must stay until the call is finished; short ones made on the
/// way live in the call's own store, until the next request is composed.
///
/// Call is the other half: what becomes of the request.
///
/// **Thread safety:** One thread at a time.
class CallWords : public net::Request {
 public:
  void addArgument(std::string_view bytes) { room_->argv.push_back(bytes); }
  void addNumber(std::int64_t number);
  /// Copies a text into the call, where it stays until the call is composed anew.
  std::string_view store(std::string_view text);
  /// Something that the arguments refer to, or that is in use while the call is under way.
  void keep(std::shared_ptr<const void> owned) noexcept { room_->kept = std::move(owned); }

  /// Adds the command with which the script announces something, which is the server's matter: see
  /// setPublish().
  void addPublish();
  /// Before it is sent. The command's name must stay.
  void setPublish(std::string_view command) noexcept;
  /// It is a script to which addPublish() has added the command.
  [[nodiscard]] bool publishes() const noexcept { return room_ && room_->publishAt != 0; }

  /// Adds the idempotency key of a numbered request, which is the last key, with the number and for
  /// how many ms the script remembers it.
  void addIdempotencyKey(std::string_view key,
                         std::uint64_t number,
                         std::chrono::milliseconds life);
  /// The key, the number and the life; empty without an idempotency key.
  [[nodiscard]] std::span<const std::string_view> idempotencyKey() const noexcept;
  /// From here on the request is executed only while its idempotency key is there.
  void setAgain();

  /// The first key; empty without one.
  [[nodiscard]] std::string_view key() const noexcept;
  /// For a composed command without a key: the node that has this slot is asked.
  void setSlot(std::uint16_t slot) noexcept { room_->slot = slot; }
  [[nodiscard]] std::uint16_t slot() const noexcept {
    return room_ && room_->slot ? *room_->slot : net::hashSlot(key());
  }

  /// Sends the script's text instead of its hash from here on.
  void sendText() noexcept;
  /// Takes sendText() back: the text could not be sent.
  void sendHash() noexcept;
  [[nodiscard]] bool sendsText() const noexcept { return asText_; }
  /// The script gives memory back in the end, although it may write before.
  void setFreesMemory(bool frees) noexcept { freesMemory_ = frees; }
  /// Sends the text in a form that may write at the memory limit. False when that does not apply or
  /// was done already.
  bool sendDespiteMemoryLimit();

  [[nodiscard]] std::span<const std::string_view> argv() const noexcept {
    return room_ ? room_->argv.words() : std::span<const std::string_view>();
  }

 protected:
  CallWords() = default;

  /// Begins an ordinary command.
  void beginCommand(std::initializer_list<std::string_view> argv);
  /// Begins a script. Its keys and arguments follow by addArgument(), keys first.
  void beginScript(const lua::Script& script, std::size_t keys);
  void makeRoom() {
    if (!room_) {
      room_ = std::make_unique_for_overwrite<CallRoom>();
      setReplyPlace(&room_->reply);
    }
  }

  const lua::Script* script_ = nullptr;
  bool asText_ = false;
  bool freesMemory_ = false;
  bool despiteLimit_ = false;
  std::unique_ptr<CallRoom> room_;
};

// Composing.

inline void CallWords::beginCommand(std::initializer_list<std::string_view> argv) {
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
}

inline void CallWords::beginScript(const lua::Script& script, std::size_t keys) {
  makeRoom();
  script_ = &script;
  asText_ = false;
  freesMemory_ = false;
  despiteLimit_ = false;
  room_->idempotencyKeyAt = 0;
  room_->publishAt = 0;
  room_->slot.reset();
  room_->stored = 0;
  room_->spilled.clear();
  room_->argv.clear();
  room_->argv.push_back("EVALSHA");
  room_->argv.push_back(script.sha1);
  addNumber(static_cast<std::int64_t>(keys));
}

inline void CallWords::addNumber(std::int64_t number) {
  constexpr std::string_view kDigits = "0123456789";
  if (number >= 0 && number < 10) {
    room_->argv.push_back(kDigits.substr(static_cast<std::size_t>(number), 1));
    return;
  }
  std::array<char, 20> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  room_->argv.push_back(store(std::string_view(digits.data(), end)));
}

inline std::string_view CallWords::store(std::string_view text) {
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

inline void CallWords::addPublish() {
  room_->publishAt = room_->argv.size();
  room_->argv.push_back("PUBLISH");
}

inline void CallWords::setPublish(std::string_view command) noexcept {
  if (room_->publishAt != 0) {
    room_->argv[room_->publishAt] = command;
  }
}

inline void CallWords::addIdempotencyKey(std::string_view key,
                                         std::uint64_t number,
                                         std::chrono::milliseconds life) {
  room_->idempotencyKeyAt = room_->argv.size();
  addArgument(key);
  addNumber(static_cast<std::int64_t>(number));
  addNumber(life.count());
}

inline std::span<const std::string_view> CallWords::idempotencyKey() const noexcept {
  return !room_ || room_->idempotencyKeyAt == 0 ? std::span<const std::string_view>()
                                                : argv().subspan(room_->idempotencyKeyAt, 3);
}

inline void CallWords::setAgain() {
  std::string_view& number = room_->argv[room_->idempotencyKeyAt + 1];
  if (!number.ends_with('!')) {
    number = store(std::string(number) + '!');
  }
}

inline std::string_view CallWords::key() const noexcept {
  const std::size_t at = script_ != nullptr ? 3 : 1;
  const auto words = argv();
  return at < words.size() ? words[at] : std::string_view();
}

// The forms of a script.

inline void CallWords::sendText() noexcept {
  if (script_ != nullptr && !asText_) {
    asText_ = true;
    room_->argv[0] = "EVAL";
    room_->argv[1] = script_->body;
  }
}

inline void CallWords::sendHash() noexcept {
  if (script_ != nullptr && asText_) {
    asText_ = false;
    despiteLimit_ = false;
    room_->argv[0] = "EVALSHA";
    room_->argv[1] = script_->sha1;
  }
}

/// The limit stops only a script's first write. So the text begins with a write that needs no
/// memory and fails: an expiry that is no number changes nothing, whatever the key holds. (Redis 7
/// has a flag for this, allow-oom, which older servers take for a syntax error.)
inline bool CallWords::sendDespiteMemoryLimit() {
  if (script_ == nullptr || !freesMemory_ || despiteLimit_) {
    return false;
  }
  despiteLimit_ = true;
  sendText();
  // A server that replicates scripts as text can be told to do otherwise only before a write.
  room_->argv[1] = store(
      "if redis.replicate_commands then redis.replicate_commands() end\n"
      "redis.pcall('pexpire', KEYS[1], '')\n" +
      std::string(script_->body));
  return true;
}

}  // namespace rlock::detail
