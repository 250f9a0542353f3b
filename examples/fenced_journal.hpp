// SPDX-License-Identifier: Apache-2.0
// A resource that takes part in fencing: a journal in Redis that refuses whoever comes with an
// older token than it has seen. docs/fencing.md shows the same for SQL.
#pragma once

#include "redis.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// One thread at a time.
class FencedJournal {
 public:
  struct Entry {
    std::uint64_t token = 0;
    std::string text;
  };

  FencedJournal(const std::string& uri, const std::string& name)
      : redis_(uri),
        // The braces put the keys into one slot of a cluster, as scripts need them.
        entries_("{" + name + "}:entries"),
        refused_("{" + name + "}:refused"),
        youngest_("{" + name + "}:youngest-token") {}

  /// @returns false when it was refused: somebody with a younger token has been here
  bool append(std::uint64_t token, const std::string& text) {
    // The check and the write are one step. Lua's numbers are exact up to 2^53;
    // lua/fenced_write.lua, which sets one value, compares all 64 bits.
    static const std::string script = R"(
      local entry = ARGV[1] .. ' ' .. ARGV[2]
      if tonumber(redis.call('get', KEYS[3]) or 0) > tonumber(ARGV[1]) then
        redis.call('rpush', KEYS[2], entry)
        return 0
      end
      redis.call('set', KEYS[3], ARGV[1])
      redis.call('rpush', KEYS[1], entry)
      return 1)";
    return redis_.number(
               {"EVAL", script, "3", entries_, refused_, youngest_, std::to_string(token), text}) ==
           1;
  }

  /// In the order in which they were written.
  std::vector<Entry> entries() { return read(entries_); }
  /// The writes that were refused.
  std::vector<Entry> refused() { return read(refused_); }
  void remove() { redis_.command({"DEL", entries_, refused_, youngest_}); }

 private:
  std::vector<Entry> read(const std::string& list) {
    std::vector<Entry> result;
    for (const std::string& line : redis_.list({"LRANGE", list, "0", "-1"})) {
      const std::size_t space = line.find(' ');
      result.push_back({std::stoull(line.substr(0, space)), line.substr(space + 1)});
    }
    return result;
  }

  Redis redis_;
  std::string entries_;
  std::string refused_;
  std::string youngest_;
};
