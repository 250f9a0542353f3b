// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/base/token_backend.hpp>
#include <rlock/detail/engine/scripted_object.hpp>
#include <rlock/detail/executor/fenced_scripts.hpp>

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// Asks the server for the token of an owner's own hold.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class ScriptedTokens final : public TokenBackend {
 public:
  ScriptedTokens(std::shared_ptr<LockEngine> engine, std::shared_ptr<const FencedScripts> scripts);

  Result<std::uint64_t> token(OwnerId owner) override;
  void tokenAsync(OwnerId owner, Handler handler) override;

 private:
  using Token = FencedScripts::Token;

  static void composeToken(Call& call, const LockScripts& scripts, std::string_view owner);
  static Result<std::uint64_t> ownToken(const ScriptedObject& object,
                                        OwnerId owner,
                                        const Result<Token>& answer);

  const ScriptedObject object_;
};

inline void ScriptedTokens::composeToken(Call& call,
                                         const LockScripts& scripts,
                                         std::string_view owner) {
  static_cast<const FencedScripts&>(scripts).composeToken(call, owner);
}

inline Result<std::uint64_t> ScriptedTokens::ownToken(const ScriptedObject& object,
                                                      OwnerId owner,
                                                      const Result<Token>& answer) {
  if (!answer.has_value()) {
    return answer.error();
  }
  if (!*answer) {
    return object.describe(Error(Errc::notOwner, "not held by this owner, or no longer"), owner);
  }
  return **answer;
}

inline ScriptedTokens::ScriptedTokens(std::shared_ptr<LockEngine> engine,
                                      std::shared_ptr<const FencedScripts> scripts)
    : object_(std::move(engine), std::move(scripts)) {}

inline Result<std::uint64_t> ScriptedTokens::token(OwnerId owner) {
  return ownToken(
      object_, owner, object_.ask<Token>(owner, composeToken, FencedScripts::parseToken));
}

inline void ScriptedTokens::tokenAsync(OwnerId owner, Handler handler) {
  object_.askAsync<Token>(
      owner,
      [object = object_, owner, handler = std::move(handler)](Result<Token> answer) mutable {
        handler(answerOrNoMemory<std::uint64_t>([&] { return ownToken(object, owner, answer); }));
      },
      composeToken,
      FencedScripts::parseToken);
}

}  // namespace rlock::detail
