// SPDX-License-Identifier: Apache-2.0

// RedisModel: which commands there are, and whether one may run. The checks come in the order in
// which Redis 7.0 makes them, because a request that is wrong in two ways gets the first error; the
// words of each are Redis' own.

#include "testing/redis_model_impl.hpp"

#include <algorithm>
#include <unordered_map>

namespace rlock::sim {

using std::string_view;

namespace {

constexpr unsigned kNoScript = RedisCommand::kNoScript;
constexpr unsigned kLoading = RedisCommand::kLoading;
constexpr unsigned kNoAuth = RedisCommand::kNoAuth;
constexpr unsigned kSubscribed = RedisCommand::kSubscribed;

/// The numbers are the arity: with the command's name, negative for at least so many.
constexpr auto kOwnCommands = std::to_array<std::pair<RedisCommand, Own>>({
    {{"auth", -2, kNoScript | kLoading | kNoAuth, nullptr}, Own::auth},
    {{"client", -2, kNoScript | kLoading, nullptr}, Own::client},
    {{"echo", 2, kLoading, nullptr}, Own::echo},
    {{"eval", -3, kNoScript, nullptr}, Own::eval},
    {{"evalsha", -3, kNoScript, nullptr}, Own::evalsha},
    {{"flushall", -1, kWrite, nullptr}, Own::flushall},
    {{"flushdb", -1, kWrite, nullptr}, Own::flushdb},
    {{"hello", -1, kNoScript | kLoading | kNoAuth, nullptr}, Own::hello},
    {{"info", -1, kLoading, nullptr}, Own::info},
    {{"ping", -1, kSubscribed, nullptr}, Own::ping},
    {{"publish", 3, kLoading, nullptr}, Own::publish},
    {{"script", -2, kNoScript, nullptr}, Own::script},
    {{"select", 2, kLoading, nullptr}, Own::select},
    {{"spublish", 3, kLoading, nullptr}, Own::spublish},
    {{"subscribe", -2, kNoScript | kLoading | kSubscribed, nullptr}, Own::subscribe},
    {{"time", 1, kLoading, nullptr}, Own::time},
    {{"unsubscribe", -1, kNoScript | kLoading | kSubscribed, nullptr}, Own::unsubscribe},
});

/// Subcommands with the number of their arguments, as in RedisCommand::arity.
constexpr auto kSubcommands = std::to_array<std::pair<string_view, int>>({
    {"client|id", 2},
    {"client|info", 2},
    {"client|getname", 2},
    {"client|kill", -3},
    {"client|list", -2},
    {"client|setname", 3},
    {"script|exists", -3},
    {"script|flush", -2},
    {"script|load", 3},
});

const std::unordered_map<string_view, CommandEntry>& commandTable() {
  // Never destroyed, because a server may be used until the process ends.
  static const auto& table = *new auto([] {
    std::unordered_map<string_view, CommandEntry> result;
    for (const auto commands : {keyCommands(), orderedCommands()}) {
      for (const RedisCommand& command : commands) {
        result.emplace(command.name, CommandEntry{&command, Own::ping});
      }
    }
    for (const auto& [command, own] : kOwnCommands) {
      result.emplace(command.name, CommandEntry{&command, own});
    }
    return result;
  }());
  return table;
}

}  // namespace

const CommandEntry* findCommand(string_view name) {
  // No allocation: this runs for each command of each script.
  std::array<char, 32> lower{};
  if (name.size() > lower.size()) {
    return nullptr;
  }
  std::transform(name.begin(), name.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  const auto found = commandTable().find(string_view(lower.data(), name.size()));
  return found == commandTable().end() ? nullptr : &found->second;
}

// Whether a command may run.

std::string RedisModel::Impl::fullName(const RedisCommand& command, Argv argv) {
  std::string name(command.name);
  if ((name == "client" || name == "script") && argv.size() > 1) {
    name += '|' + lowerCase(argv[1]);
  }
  return name;
}

bool RedisModel::Impl::isDenied(ClientId id, const RedisCommand& command, Argv argv) const {
  if (denied_.empty()) {
    return false;
  }
  const auto among = [&](ClientId who) {
    const auto found = denied_.find(who);
    return found != denied_.end() && (found->second.contains(std::string(command.name)) ||
                                      found->second.contains(fullName(command, argv)));
  };
  return among(id) || among(kEverybody);
}

std::optional<std::string> RedisModel::Impl::refuse(const Client& client, Argv argv) const {
  // A test's own refusals come before all others.
  if (model_.refusalHook_) {
    if (auto refusal = model_.refusalHook_(caller_, argv)) {
      return refusal;
    }
  }
  const CommandEntry* const entry = findCommand(argv[0]);
  if (entry == nullptr) {
    std::string text = "ERR unknown command '" + std::string(argv[0].substr(0, 128)) +
                       "', with args beginning with: ";
    for (const string_view argument : argv.subspan(1)) {
      text += "'" + std::string(argument.substr(0, 128)) + "' ";
    }
    return text;
  }
  const RedisCommand& command = *entry->command;
  if (auto refusal = refuseForm(command, argv)) {
    return refusal;
  }
  if (!client.authenticated && (command.flags & kNoAuth) == 0) {
    return "NOAUTH Authentication required.";
  }
  if (isDenied(caller_, command, argv)) {
    return "NOPERM this user has no permissions to run the '" + fullName(command, argv) +
           "' command";
  }
  if (model_.outOfMemory_ && (command.flags & RedisCommand::kDenyOom) != 0) {
    return std::string(kOutOfMemory);
  }
  if (model_.readOnly_ && (command.flags & kWrite) != 0) {
    return std::string(kReadOnly);
  }
  if (!client.channels.empty() && (command.flags & kSubscribed) == 0) {
    return "ERR Can't execute '" + fullName(command, argv) +
           "': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this "
           "context";
  }
  if (model_.loading_ && (command.flags & kLoading) == 0) {
    return "LOADING Redis is loading the dataset in memory";
  }
  return std::nullopt;
}

std::optional<std::string> RedisModel::Impl::refuseForm(const RedisCommand& command, Argv argv) {
  if (!command.accepts(argv.size())) {
    return replyArity(command.name).text;
  }
  const std::string name = fullName(command, argv);
  // Only commands with subcommands have a bar in their full name.
  if (name.find('|') == std::string::npos) {
    return std::nullopt;
  }
  const auto found = std::find_if(
      kSubcommands.begin(), kSubcommands.end(), [&](const auto& sub) { return sub.first == name; });
  if (found == kSubcommands.end()) {
    std::string container(command.name);
    std::transform(container.begin(), container.end(), container.begin(), [](char c) {
      return static_cast<char>(c - 'a' + 'A');
    });
    return "ERR unknown subcommand '" + std::string(argv[1].substr(0, 128)) + "'. Try " +
           container + " HELP.";
  }
  if (!RedisCommand{name, found->second, 0, nullptr}.accepts(argv.size())) {
    return replyArity(name).text;
  }
  return std::nullopt;
}

}  // namespace rlock::sim
