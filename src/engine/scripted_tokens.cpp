// SPDX-License-Identifier: Apache-2.0
#include "engine/scripted_tokens.hpp"

#include <string_view>
#include <utility>

namespace rlock::detail {

void ScriptedTokens::composeToken(Call& call, const LockScripts& scripts, std::string_view owner) {
  static_cast<const FencedScripts&>(scripts).composeToken(call, owner);
}

Result<std::uint64_t> ScriptedTokens::ownToken(const ScriptedObject& object,
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

ScriptedTokens::ScriptedTokens(std::shared_ptr<LockEngine> engine,
                               std::shared_ptr<const FencedScripts> scripts)
    : object_(std::move(engine), std::move(scripts)) {}

Result<std::uint64_t> ScriptedTokens::token(OwnerId owner) {
  return ownToken(
      object_, owner, object_.ask<Token>(owner, composeToken, FencedScripts::parseToken));
}

void ScriptedTokens::tokenAsync(OwnerId owner, Handler handler) {
  object_.askAsync<Token>(
      owner,
      [object = object_, owner, handler = std::move(handler)](Result<Token> answer) mutable {
        handler(ownToken(object, owner, answer));
      },
      composeToken,
      FencedScripts::parseToken);
}

}  // namespace rlock::detail
