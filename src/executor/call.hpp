// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/command_link.hpp"
#include "net/loop.hpp"
#include <rlock/detail/lua_scripts.hpp>
#include <rlock/error.hpp>

#include <array>
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

class Executor;

/// What became of a call.
struct Outcome {
  enum class Kind : std::uint8_t {
    replied,  ///< Call::reply() is the answer, no error
    failed,   ///< certainly not executed; `error` says why
    unknown,  ///< executed, or not, or still to be; Request::session() says on which connection
  };
  Kind kind = Kind::replied;
  std::optional<Error> error{};
  bool noTimeLeft = false;  ///< failed only because its time was over: there is a connection
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
    argv_.assign(argv.begin(), argv.end());
    asText_ = false;
  }

  /// A script. Its keys and arguments follow by addArgument(), keys first.
  void setScript(const lua::Script& script, std::size_t keys) {
    script_ = &script;
    asText_ = false;
    freesMemory_ = false;
    despiteLimit_ = false;
    stored_ = 0;
    argv_.clear();
    argv_.emplace_back("EVALSHA");
    argv_.push_back(script.sha1);
    addNumber(static_cast<std::int64_t>(keys));
  }
  void addArgument(std::string_view bytes) { argv_.push_back(bytes); }
  void addNumber(std::int64_t number) { argv_.push_back(store(std::to_string(number))); }

  /// Copies a short text into the call; empty when it does not fit.
  std::string_view store(std::string_view text) noexcept {
    if (text.size() > store_.size() - stored_) {
      spilled_.push_back(std::make_unique<std::string>(text));
      return *spilled_.back();
    }
    char* const place = store_.data() + stored_;
    text.copy(place, text.size());
    stored_ += text.size();
    return {place, text.size()};
  }

  /// Something that the arguments refer to, or that is in use while the call is under way.
  void keep(std::shared_ptr<const void> owned) noexcept { kept_ = std::move(owned); }

  /// Sends the script's text instead of its hash from here on.
  void sendText() noexcept {
    if (script_ != nullptr && !asText_) {
      asText_ = true;
      argv_[0] = "EVAL";
      argv_[1] = script_->body;
    }
  }
  /// Takes sendText() back: the text could not be sent.
  void sendHash() noexcept {
    if (script_ != nullptr && asText_) {
      asText_ = false;
      argv_[0] = "EVALSHA";
      argv_[1] = script_->sha1;
    }
  }
  /// The script gives memory back in the end, although it may write before.
  void setFreesMemory(bool frees) noexcept { freesMemory_ = frees; }
  /// Sends the text with the flag that lets it write at the memory limit (Redis 7). False when that
  /// does not apply or was done already.
  bool sendDespiteMemoryLimit() {
    if (script_ == nullptr || !freesMemory_ || despiteLimit_) {
      return false;
    }
    despiteLimit_ = true;
    sendText();
    argv_[1] = store("#!lua flags=allow-oom\n" + std::string(script_->body));
    return true;
  }
  [[nodiscard]] bool sendsText() const noexcept { return asText_; }
  [[nodiscard]] std::span<const std::string_view> argv() const noexcept { return argv_; }

  /// May be sent again when its reply was lost.
  void setRepeatable(bool repeatable) noexcept { repeatable_ = repeatable; }
  [[nodiscard]] bool repeatable() const noexcept { return repeatable_; }

 protected:
  Call() noexcept { argv_.reserve(10); }

  /// Called once on the loop thread for each Executor::start() and resume().
  virtual void finished(Outcome outcome) noexcept = 0;

 private:
  friend class Executor;

  static constexpr std::size_t kNotParked = static_cast<std::size_t>(-1);

  void completed() noexcept final;

  const lua::Script* script_ = nullptr;
  bool asText_ = false;
  bool repeatable_ = false;
  bool freesMemory_ = false;
  bool despiteLimit_ = false;
  std::vector<std::string_view> argv_;
  std::array<char, 128> store_{};
  std::size_t stored_ = 0;
  std::vector<std::unique_ptr<std::string>> spilled_;
  std::shared_ptr<const void> kept_;

  // While the executor has it; loop thread only.
  Executor* executor_ = nullptr;
  std::chrono::steady_clock::time_point sendBefore_{};
  int attempts_ = 0;
  std::vector<std::shared_ptr<const net::ServerSession>> fence_;
  std::unique_ptr<net::Timer> timer_;
  std::size_t parkedAt_ = kNotParked;
  bool waitsForLink_ = false;
  std::optional<Error> lastError_;
};

}  // namespace rlock::detail
