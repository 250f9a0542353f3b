// SPDX-License-Identifier: Apache-2.0

// RedisModel: EVAL, EVALSHA and SCRIPT, and the rules for commands within a script, which differ
// from those outside in their words and in when they apply.

#include "testing/redis_model_impl.hpp"

namespace rlock::sim {

using detail::Reply;
using std::string_view;

const std::string& RedisModel::Impl::hashOf(string_view body) {
  // Kept for good: the same few texts are sent again and again, and SHA-1 is what a request with a
  // text costs most.
  const auto found = hashes_.find(body);
  return found != hashes_.end() ? found->second
                                : hashes_.emplace(body, sha1Hex(body)).first->second;
}

Reply RedisModel::Impl::script(Argv argv) {
  const std::string verb = lowerCase(argv[1]);
  if (verb == "load") {
    const std::string& sha1 = hashOf(argv[2]);
    if (auto failure = lua_.load(sha1, argv[2])) {
      return replyError(*failure);
    }
    scripts_.insert(sha1);
    return replyString(sha1);
  }
  if (verb == "exists") {
    std::vector<Reply> found;
    for (const string_view sha1 : argv.subspan(2)) {
      found.push_back(replyInteger(scripts_.contains(lowerCase(sha1)) ? 1 : 0));
    }
    return replyArray(std::move(found));
  }
  flushScripts();
  return replyStatus("OK");
}

Reply RedisModel::Impl::eval(Argv argv, bool asText) {
  const auto count = redisInteger(argv[2]);
  if (!count) {
    return replyError(kNotAnInteger);
  }
  if (*count > static_cast<std::int64_t>(argv.size()) - 3) {
    return replyError("ERR Number of keys can't be greater than number of args");
  }
  if (*count < 0) {
    return replyError("ERR Number of keys can't be negative");
  }
  if (asText) {
    const std::string& sha1 = hashOf(argv[1]);
    if (auto failure = lua_.load(sha1, argv[1])) {
      return replyError(*failure);
    }
    // EVAL makes a script known to EVALSHA, too, which the library relies on.
    scripts_.insert(sha1);
    return run(sha1, argv.subspan(3), static_cast<std::size_t>(*count));
  }
  const auto found = scripts_.find(lowerCase(argv[1]));
  if (found == scripts_.end()) {
    return replyError("NOSCRIPT No matching script. Please use EVAL.");
  }
  return run(*found, argv.subspan(3), static_cast<std::size_t>(*count));
}

Reply RedisModel::Impl::run(const std::string& sha1, Argv arguments, std::size_t keys) {
  scriptWrote_ = false;
  // A SELECT within a script is over with it.
  const std::size_t database = caller().database;
  Reply reply = lua_.run(sha1, arguments.first(keys), arguments.subspan(keys));
  caller().database = database;
  return reply;
}

Reply RedisModel::Impl::performInScript(Argv argv) {
  const CommandEntry* const entry = findCommand(argv[0]);
  if (entry == nullptr) {
    return replyError("ERR Unknown Redis command called from script");
  }
  const RedisCommand& command = *entry->command;
  if (!command.accepts(argv.size())) {
    return replyError("ERR Wrong number of args calling Redis command from script");
  }
  if ((command.flags & RedisCommand::kNoScript) != 0) {
    return replyError("ERR This Redis command is not allowed from script");
  }
  if (isDenied(caller_, command, argv)) {
    return replyError("ERR The user executing the script can't run this command or subcommand");
  }
  if ((command.flags & RedisCommand::kWrite) != 0 && model_.readOnly_) {
    return replyError(kReadOnly);
  }
  // As in Redis, the memory limit stops only the first write of a script: one that has begun to
  // write must be able to end.
  if ((command.flags & RedisCommand::kDenyOom) != 0 && model_.outOfMemory_ && !scriptWrote_) {
    return replyError(kOutOfMemory);
  }
  // One that fails counts, too: Call::sendDespiteMemoryLimit() begins with such a one.
  scriptWrote_ = scriptWrote_ || (command.flags & RedisCommand::kWrite) != 0;
  ++commands_;
  return perform(*entry, argv);
}

}  // namespace rlock::sim
