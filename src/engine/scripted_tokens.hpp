// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/scripted_object.hpp"
#include <rlock/detail/base/token_backend.hpp>
#include <rlock/detail/executor/fenced_scripts.hpp>

#include <cstdint>
#include <memory>
#include <string_view>

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

}  // namespace rlock::detail
