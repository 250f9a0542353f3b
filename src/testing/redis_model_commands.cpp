// SPDX-License-Identifier: Apache-2.0

// RedisModel: the commands that the server performs itself, as Redis 7.0 does: connections,
// messages, and what a handshake asks. Commands about keys are in redis_key_commands.cpp and
// redis_ordered_commands.cpp.

#include "testing/redis_model_impl.hpp"

#include <algorithm>

namespace rlock::sim {

using detail::Reply;
using std::string_view;

namespace {

constexpr string_view kVersion = "7.0.15";

}  // namespace

Reply RedisModel::Impl::perform(const CommandEntry& entry, Argv argv) {
  if (entry.command->handler != nullptr) {
    // Commands about keys know a database and the time, and nothing of the server.
    return entry.command->handler({database(), nowUs_ / 1000}, argv);
  }
  switch (entry.own) {
    case Own::auth:
      return auth(argv.subspan(1));
    case Own::client:
      return client(argv);
    case Own::echo:
      return replyString(argv[1]);
    case Own::eval:
    case Own::evalsha:
      return eval(argv, entry.own == Own::eval);
    case Own::flushall:
      for (RedisKeyspace& keys : databases_) {
        keys.clear();
      }
      return replyStatus("OK");
    case Own::flushdb:
      database().clear();
      return replyStatus("OK");
    case Own::hello:
      return hello(argv);
    case Own::info:
      return info(argv);
    case Own::ping:
      return ping(argv);
    case Own::publish:
      return publish(argv[1], argv[2]);
    case Own::spublish:
      return publishInShard(argv[1], argv[2]);
    case Own::script:
      return script(argv);
    case Own::select:
      return select(argv[1]);
    case Own::time:
      return replyArray({replyString(std::to_string(nowUs_ / 1'000'000)),
                         replyString(std::to_string(nowUs_ % 1'000'000))});
    case Own::subscribe:
    case Own::unsubscribe:
      break;
  }
  return replyError("ERR not performed here");
}

RedisKeyspace& RedisModel::Impl::database() {
  const auto found = clients_.find(caller_);
  return databases_[found == clients_.end() ? 0 : found->second.database];
}

Reply RedisModel::Impl::auth(Argv credentials) {
  if (credentials.size() > 2) {
    return replyError(kSyntaxError);
  }
  // Both forms have errors of their own: with one argument the password is the default user's.
  if (credentials.size() == 1 && options_.password.empty()) {
    return replyError(
        "ERR AUTH <password> called without any password configured for the default user. Are "
        "you sure your configuration is correct?");
  }
  const bool isDefault = credentials.size() == 1 || credentials[0] == "default";
  if (!isDefault || (!options_.password.empty() && credentials.back() != options_.password)) {
    return replyError("WRONGPASS invalid username-password pair or user is disabled.");
  }
  caller().authenticated = true;
  return replyStatus("OK");
}

Reply RedisModel::Impl::hello(Argv argv) {
  if (argv.size() > 1) {
    const auto protocol = redisInteger(argv[1]);
    if (!protocol) {
      return replyError("ERR Protocol version is not an integer or out of range");
    }
    // The model speaks RESP2 only, as the library does.
    if (*protocol != 2) {
      return replyError("NOPROTO unsupported protocol version");
    }
  }
  for (std::size_t i = 2; i < argv.size(); ++i) {
    const std::string option = lowerCase(argv[i]);
    if (option == "auth" && i + 2 < argv.size()) {
      Reply reply = auth(argv.subspan(i + 1, 2));
      if (reply.isError()) {
        return reply;
      }
      i += 2;
    } else if (option == "setname" && i + 1 < argv.size()) {
      caller().name = argv[++i];
    } else {
      return replyError("ERR Syntax error in HELLO option '" + std::string(argv[i]) + "'");
    }
  }
  if (!caller().authenticated) {
    return replyError(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO "
        "<proto> AUTH <user> <pass> option can be used to authenticate the client and select the "
        "RESP protocol version at the same time");
  }
  return replyArray({replyString("server"),
                     replyString("redis"),
                     replyString("version"),
                     replyString(kVersion),
                     replyString("proto"),
                     replyInteger(2),
                     replyString("id"),
                     replyInteger(static_cast<std::int64_t>(caller_)),
                     replyString("mode"),
                     replyString("standalone"),
                     replyString("role"),
                     replyString(model_.readOnly_ ? "replica" : "master"),
                     replyString("modules"),
                     replyArray()});
}

Reply RedisModel::Impl::info(Argv argv) const {
  const std::string section = argv.size() > 1 ? lowerCase(argv[1]) : "default";
  if (section != "server" && section != "default" && section != "all" && section != "everything") {
    return replyString("");
  }
  // The fields that a handshake reads, and no others.
  return replyString("# Server\r\nredis_version:" + std::string(kVersion) +
                     "\r\nredis_mode:standalone\r\nrun_id:" + runId_ + "\r\n");
}

Reply RedisModel::Impl::ping(Argv argv) {
  if (argv.size() > 2) {
    return replyArity("ping");
  }
  const string_view text = argv.size() == 2 ? argv[1] : string_view();
  const auto found = clients_.find(caller_);
  // While it has subscriptions, a RESP2 connection gets PING's answer in the form of a message.
  if (found != clients_.end() && !found->second.channels.empty()) {
    return replyArray({replyString("pong"), replyString(text)});
  }
  return argv.size() == 2 ? replyString(text) : replyStatus("PONG");
}

Reply RedisModel::Impl::select(string_view index) {
  const auto number = redisInteger(index);
  if (!number) {
    return replyError(kNotAnInteger);
  }
  if (*number < 0 || *number >= static_cast<std::int64_t>(databases_.size())) {
    return replyError("ERR DB index is out of range");
  }
  caller().database = static_cast<std::size_t>(*number);
  return replyStatus("OK");
}

std::string RedisModel::Impl::describe(ClientId id, const Client& client) {
  return "id=" + std::to_string(id) + " addr=" + client.address +
         " laddr=127.0.0.1:6379 name=" + client.name +
         " flags=" + (client.channels.empty() ? "N" : "P") +
         " db=" + std::to_string(client.database) +
         " sub=" + std::to_string(client.channels.size()) + " psub=0 user=default\n";
}

Reply RedisModel::Impl::client(Argv argv) {
  const std::string verb = lowerCase(argv[1]);
  if (verb == "id") {
    return replyInteger(static_cast<std::int64_t>(caller_));
  }
  if (verb == "info") {
    return replyString(describe(caller_, caller()));
  }
  if (verb == "list") {
    std::string lines;
    for (const auto& [id, other] : clients_) {
      lines += describe(id, other);
    }
    return replyString(lines);
  }
  if (verb == "getname") {
    return caller().name.empty() ? replyNil() : replyString(caller().name);
  }
  if (verb == "setname") {
    if (std::any_of(argv[2].begin(), argv[2].end(), [](char c) { return c < '!' || c > '~'; })) {
      return replyError("ERR Client names cannot contain spaces, newlines or special characters.");
    }
    caller().name = argv[2];
    return replyStatus("OK");
  }
  return kill(argv.subspan(2));
}

Reply RedisModel::Impl::kill(Argv filters) {
  std::optional<std::int64_t> id;
  std::optional<string_view> address;
  std::optional<bool> subscribed;
  bool skipMe = true;
  // CLIENT KILL ip:port, which also kills its caller, and answers otherwise.
  const bool oldForm = filters.size() == 1;
  if (oldForm) {
    address = filters[0];
    skipMe = false;
  } else if (filters.size() % 2 != 0) {
    return replyError(kSyntaxError);
  }
  for (std::size_t i = 0; i + 1 < filters.size(); i += 2) {
    const std::string name = lowerCase(filters[i]);
    const string_view value = filters[i + 1];
    if (name == "id") {
      id = redisInteger(value);
      if (!id || *id < 1) {
        return replyError("ERR client-id should be greater than 0");
      }
    } else if (name == "addr") {
      address = value;
    } else if (name == "type") {
      const std::string type = lowerCase(value);
      if (type != "normal" && type != "pubsub") {
        return replyError("ERR Unknown client type '" + std::string(value) + "'");
      }
      subscribed = type == "pubsub";
    } else if (name == "skipme" && (lowerCase(value) == "yes" || lowerCase(value) == "no")) {
      skipMe = lowerCase(value) == "yes";
    } else {
      return replyError(kSyntaxError);
    }
  }
  // Chosen before any of them is closed, because that changes the list.
  std::vector<ClientId> killed;
  for (const auto& [other, client] : clients_) {
    const bool matches =
        (!id || static_cast<ClientId>(*id) == other) && (!address || *address == client.address) &&
        (!subscribed || *subscribed == !client.channels.empty()) && (!skipMe || other != caller_);
    if (matches) {
      killed.push_back(other);
    }
  }
  for (const ClientId other : killed) {
    disconnect(other);
    if (model_.killHook_) {
      model_.killHook_(other);
    }
  }
  if (oldForm) {
    return killed.empty() ? replyError("ERR No such client") : replyStatus("OK");
  }
  return replyInteger(static_cast<std::int64_t>(killed.size()));
}

Reply RedisModel::Impl::publish(string_view channel, string_view payload) {
  if (model_.publishHook_) {
    model_.publishHook_(channel, payload);
  }
  const auto found = channels_.find(channel);
  if (found == channels_.end()) {
    return replyInteger(0);
  }
  // A message is out of the server's hands here: the simulated network delivers it, late or never.
  for (const ClientId subscriber : found->second) {
    if (model_.messageHook_) {
      model_.messageHook_(subscriber, channel, payload);
    }
  }
  return replyInteger(static_cast<std::int64_t>(found->second.size()));
}

Reply RedisModel::Impl::publishInShard(string_view channel, string_view payload) {
  return replyInteger(model_.shardHook_ ? model_.shardHook_(channel, payload) : 0);
}

void RedisModel::Impl::removeSubscriber(const std::string& channel, ClientId id) {
  const auto found = channels_.find(channel);
  if (found != channels_.end()) {
    found->second.erase(id);
    if (found->second.empty()) {
      channels_.erase(found);
    }
  }
}

std::vector<Reply> RedisModel::Impl::confirm(Client& client, Argv named, bool subscribing) {
  std::vector<std::string> names(named.begin(), named.end());
  if (names.empty()) {
    names.assign(client.channels.begin(), client.channels.end());
  }
  std::vector<Reply> replies;
  const auto answer = [&](Reply channel) {
    replies.push_back(
        replyArray({replyString(subscribing ? "subscribe" : "unsubscribe"),
                    std::move(channel),
                    replyInteger(static_cast<std::int64_t>(client.channels.size()))}));
  };
  for (const std::string& name : names) {
    if (subscribing) {
      client.channels.insert(name);
      channels_[name].insert(caller_);
    } else {
      client.channels.erase(name);
      removeSubscriber(name, caller_);
    }
    answer(replyString(name));
  }
  // UNSUBSCRIBE without names, and without subscriptions, is answered all the same.
  if (names.empty()) {
    answer(replyNil());
  }
  return replies;
}

}  // namespace rlock::sim
