// SPDX-License-Identifier: Apache-2.0
// Where the examples of several processes keep the data that the lock protects. Any client of any
// database would do. This one is hiredis, which rlock needs anyway.
#pragma once

#include <rlock/options.hpp>

#include <hiredis/hiredis.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <sys/time.h>
#include <vector>

/// A connection. One thread at a time.
class Redis {
 public:
  /// @param uri  redis:// or unix://
  explicit Redis(const std::string& uri) {
    const rlock::Options options = rlock::Options::fromUri(uri);
    if (options.topology != rlock::Topology::single || options.tls) {
      throw std::runtime_error("the example's data needs redis:// or unix://");
    }
    const rlock::Endpoint& server = options.endpoints.front();
    const timeval limit{.tv_sec = 30, .tv_usec = 0};
    context_.reset(server.path.empty()
                       ? ::redisConnectWithTimeout(server.host.c_str(), server.port, limit)
                       : ::redisConnectUnixWithTimeout(server.path.c_str(), limit));
    if (!context_ || context_->err != 0) {
      throw std::runtime_error(context_ ? context_->errstr : "out of memory");
    }
    ::redisSetTimeout(context_.get(), limit);
    if (!options.password.empty()) {
      options.username.empty() ? command({"AUTH", options.password})
                               : command({"AUTH", options.username, options.password});
    }
    if (options.database != 0) {
      command({"SELECT", std::to_string(options.database)});
    }
  }

  /// @returns the answer as text; empty for none
  std::string command(const std::vector<std::string>& words) { return text(*send(words)); }
  /// @returns the answer as a number; 0 for none
  long long number(const std::vector<std::string>& words) {
    const std::string answer = command(words);
    return answer.empty() ? 0 : std::stoll(answer);
  }
  /// @returns the elements of the answer
  std::vector<std::string> list(const std::vector<std::string>& words) {
    const Reply reply = send(words);
    std::vector<std::string> result;
    for (std::size_t i = 0; i < reply->elements; ++i) {
      result.push_back(text(*reply->element[i]));
    }
    return result;
  }

 private:
  struct Free {
    void operator()(redisContext* context) const { ::redisFree(context); }
    void operator()(redisReply* reply) const { ::freeReplyObject(reply); }
  };
  using Reply = std::unique_ptr<redisReply, Free>;

  Reply send(const std::vector<std::string>& words) {
    std::vector<const char*> texts;
    std::vector<std::size_t> sizes;
    for (const std::string& word : words) {
      texts.push_back(word.data());
      sizes.push_back(word.size());
    }
    Reply reply(static_cast<redisReply*>(::redisCommandArgv(
        context_.get(), static_cast<int>(words.size()), texts.data(), sizes.data())));
    if (!reply) {
      throw std::runtime_error(context_->errstr);
    }
    if (reply->type == REDIS_REPLY_ERROR) {
      throw std::runtime_error(text(*reply));
    }
    return reply;
  }
  static std::string text(const redisReply& reply) {
    if (reply.type == REDIS_REPLY_INTEGER) {
      return std::to_string(reply.integer);
    }
    return reply.str == nullptr ? std::string() : std::string(reply.str, reply.len);
  }

  std::unique_ptr<redisContext, Free> context_;
};
