// SPDX-License-Identifier: Apache-2.0

// RedisModel: connections of the simulated server, the way of a request through it, and dump(),
// which shows all keys in one order, so that two servers can be compared by text.

#include "testing/redis_model.hpp"

#include "testing/redis_model_impl.hpp"

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <variant>

namespace rlock::sim {

using detail::Reply;
using std::string_view;

namespace {

void appendQuoted(std::string& text, string_view bytes) {
  text += '"';
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    if (value < 0x20 || value >= 0x7f || byte == '"' || byte == '\\') {
      std::array<char, 5> escaped{};
      std::snprintf(escaped.data(), escaped.size(), "\\x%02x", static_cast<unsigned>(value));
      text += escaped.data();
    } else {
      text += byte;
    }
  }
  text += '"';
}

/// Writes a value of any type, with escaped bytes.
struct AppendValue {
  std::string& text;

  void operator()(const std::string& value) const { appendQuoted(text, value); }
  void operator()(const RedisHash& hash) const {
    text += '{';
    for (const auto& [field, value] : hash.entries()) {
      appendQuoted(text, field);
      text += ": ";
      appendQuoted(text, value);
      text += ", ";
    }
    close('}');
  }
  void operator()(const RedisList& list) const {
    text += '[';
    for (const std::string& element : list) {
      appendQuoted(text, element);
      text += ", ";
    }
    close(']');
  }
  void operator()(const RedisZset& zset) const {
    text += '{';
    for (const auto& [score, member] : zset.entries()) {
      appendQuoted(text, member);
      text += ": " + redisDoubleText(score) + ", ";
    }
    close('}');
  }

 private:
  void close(char bracket) const {
    if (text.ends_with(", ")) {
      text.resize(text.size() - 2);
    }
    text += bracket;
  }
};

}  // namespace

RedisModel::ClientId RedisModel::Impl::connect(std::string address) {
  const ClientId id = ++lastClient_;
  Client& client = clients_[id];
  client.address =
      // Each connection has an address of its own, as CLIENT KILL ADDR needs it.
      address.empty() ? "127.0.0.1:" + std::to_string(10'000 + id % 50'000) : std::move(address);
  client.authenticated = options_.password.empty();
  return id;
}

void RedisModel::Impl::disconnect(ClientId id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) {
    return;
  }
  for (const std::string& channel : found->second.channels) {
    removeSubscriber(channel, id);
  }
  clients_.erase(found);
  denied_.erase(id);
}

std::vector<Reply> RedisModel::Impl::execute(ClientId id, Argv argv) {
  const auto found = clients_.find(id);
  // A killed client may have sent this before it noticed.
  if (found == clients_.end()) {
    return {replyError("CLOSED this connection is closed")};
  }
  if (argv.empty()) {
    return {replyError("ERR Protocol error: a request without a command")};
  }
  caller_ = id;
  // The time stands still during a request, also within a script: a key cannot expire between two
  // of its commands.
  nowUs_ = clock_();
  if (auto refusal = refuse(found->second, argv)) {
    return {replyError(*refusal)};
  }
  const CommandEntry& entry = *findCommand(argv[0]);
  ++commands_;
  if (entry.command->handler == nullptr &&
      // The only commands with more than one reply: one for each channel.
      (entry.own == Own::subscribe || entry.own == Own::unsubscribe)) {
    return confirm(found->second, argv.subspan(1), entry.own == Own::subscribe);
  }
  return {perform(entry, argv)};
}

void RedisModel::Impl::restart(bool keepData) {
  // Everything that a process has in its memory only is gone: connections, subscriptions, scripts.
  // Ids of clients begin again, as in a real server, so that an old id may be another client's.
  clients_.clear();
  channels_.clear();
  scripts_.clear();
  lastClient_ = 0;
  if (!keepData) {
    for (RedisKeyspace& keys : databases_) {
      keys.clear();
    }
  }
  start();
}

void RedisModel::Impl::allow(ClientId id, string_view name) {
  const auto found = denied_.find(id);
  if (found != denied_.end()) {
    found->second.erase(std::string(name));
  }
}

bool RedisModel::Impl::eraseEverywhere(string_view key) {
  const std::int64_t nowMs = clock_() / 1000;
  bool erased = false;
  for (RedisKeyspace& keys : databases_) {
    erased = keys.erase(key, nowMs) || erased;
  }
  return erased;
}

std::size_t RedisModel::Impl::subscribers(string_view channel) const {
  const auto found = channels_.find(channel);
  return found == channels_.end() ? 0 : found->second.size();
}

void RedisModel::Impl::start() {
  ++runs_;
  runId_ = sha1Hex(std::to_string(options_.seed) + ":" + std::to_string(runs_));
  // Rules for all are in the server's configuration and stay; the others were for connections that
  // are gone.
  denied_.erase(denied_.upper_bound(kEverybody), denied_.end());
}

RedisModel::RedisModel(WallClock wallMicroseconds, RedisModelOptions options)
    : impl_(std::make_unique<Impl>(*this, std::move(wallMicroseconds), std::move(options))) {}

RedisModel::~RedisModel() = default;

RedisModel::ClientId RedisModel::connect(std::string address) {
  return impl_->connect(std::move(address));
}

void RedisModel::disconnect(ClientId client) {
  impl_->disconnect(client);
}

bool RedisModel::connected(ClientId client) const {
  return impl_->connected(client);
}

Reply RedisModel::execute(ClientId client, Argv argv) {
  std::vector<Reply> replies = impl_->execute(client, argv);
  if (replies.size() != 1) {
    throw std::logic_error("several replies to one command: see RedisModel::subscribe()");
  }
  return std::move(replies.front());
}

std::vector<Reply> RedisModel::subscribe(ClientId client, Argv channels) {
  std::vector<string_view> argv{"SUBSCRIBE"};
  argv.insert(argv.end(), channels.begin(), channels.end());
  return impl_->execute(client, argv);
}

std::vector<Reply> RedisModel::unsubscribe(ClientId client, Argv channels) {
  std::vector<string_view> argv{"UNSUBSCRIBE"};
  argv.insert(argv.end(), channels.begin(), channels.end());
  return impl_->execute(client, argv);
}

void RedisModel::flushScripts() {
  impl_->flushScripts();
}

void RedisModel::restart(bool keepData) {
  impl_->restart(keepData);
}

string_view RedisModel::runId() const {
  return impl_->runId();
}

std::vector<std::string> RedisModel::keys() const {
  std::vector<std::string> names;
  for (const auto* const key : impl_->keys()) {
    names.push_back(key->first);
  }
  return names;
}

void RedisModel::migrate(string_view key, RedisModel& to) {
  for (const auto* const each : impl_->keys()) {
    if (each->first == key) {
      to.impl_->copy(each->first, each->second);
      impl_->forget(key);
      return;
    }
  }
}

void RedisModel::replicate(const RedisModel& master) {
  for (const std::string& key : keys()) {
    impl_->forget(key);
  }
  for (const auto* const key : master.impl_->keys()) {
    impl_->copy(key->first, key->second);
  }
}

bool RedisModel::eraseEverywhere(string_view key) {
  return impl_->eraseEverywhere(key);
}

void RedisModel::denyCommand(ClientId client, std::string name) {
  impl_->deny(client, std::move(name));
}

void RedisModel::allowCommand(ClientId client, string_view name) {
  impl_->allow(client, name);
}

void RedisModel::denyCommandToAll(std::string name) {
  impl_->deny(Impl::kEverybody, std::move(name));
}

void RedisModel::allowCommandToAll(string_view name) {
  impl_->allow(Impl::kEverybody, name);
}

std::string RedisModel::dump(std::size_t database) const {
  auto keys = impl_->keys(database);
  std::sort(keys.begin(), keys.end(), [](const auto* left, const auto* right) {
    return left->first < right->first;
  });
  std::string text;
  for (const auto* const key : keys) {
    const RedisObject& object = key->second;
    appendQuoted(text, key->first);
    text += ' ';
    text += object.typeName();
    text += ' ' + (object.expiresAt ? std::to_string(*object.expiresAt) : "-") + ' ';
    std::visit(AppendValue{text}, object.value);
    text += '\n';
  }
  return text;
}

std::size_t RedisModel::keyCount() const {
  return impl_->keys().size();
}

std::size_t RedisModel::subscribers(string_view channel) const {
  return impl_->subscribers(channel);
}

std::uint64_t RedisModel::commandCount() const {
  return impl_->commandCount();
}

}  // namespace rlock::sim
