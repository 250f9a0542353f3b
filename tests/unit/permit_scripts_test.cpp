// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>
#include <rlock/detail/executor/permit_scripts.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>

namespace rlock::detail {
namespace {

TEST(PermitScripts, IdsAreWrittenAndReadInHexadecimal) {
  const std::string bytes("\x00\x0f\xf0\xff\x7f\x80 {}\r\n\0:=", 15);
  EXPECT_EQ(permitIdToHex(bytes), "000ff0ff7f80207b7d0d0a003a3d00");
  const std::string id = "0123456789abcdef0123456789ABCDEF";
  const auto read = permitIdFromHex(id);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->size(), 16U);
  EXPECT_EQ(permitIdToHex(*read), "0123456789abcdef0123456789abcdef");
  EXPECT_FALSE(permitIdFromHex(""));
  EXPECT_FALSE(permitIdFromHex(id.substr(1)));
  EXPECT_FALSE(permitIdFromHex(id + "0"));
  for (const char wrong : {'g', 'G', '/', ':', '@', '`', '\0', ' '}) {
    std::string other = id;
    other[7] = wrong;
    EXPECT_FALSE(permitIdFromHex(other)) << wrong;
  }
}

TEST(PermitScripts, EachAcquisitionHasIdsOfItsOwn) {
  const PermitScripts semaphore("name", nullptr);
  std::set<std::string> all;
  for (int i = 0; i < 100; ++i) {
    for (const std::string& id : PermitScripts(semaphore, 10, HoldKind::none, true).ids()) {
      EXPECT_EQ(id.size(), 32U);
      all.insert(id);
    }
  }
  EXPECT_EQ(all.size(), 1000U);
}

TEST(PermitScripts, AChildProcessDrawsOtherIdsThanItsParent) {
  static_cast<void>(randomBits());
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::uint64_t bits = randomBits();
    const ssize_t written = ::write(ends[1], &bits, sizeof bits);
    ::_exit(written == sizeof bits ? 0 : 1);
  }
  const std::uint64_t mine = randomBits();
  std::uint64_t theirs = mine;
  EXPECT_EQ(::read(ends[0], &theirs, sizeof theirs), static_cast<ssize_t>(sizeof theirs));
  EXPECT_NE(mine, theirs);
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(PermitScripts, KeysAndChannelsStayInTheSlotOfTheName) {
  EXPECT_EQ(suffixed("name", "timeout"), "{name}:timeout");
  EXPECT_EQ(suffixed("a{t}b", "timeout"), "a{t}b:timeout");
  EXPECT_EQ(semaphoreChannel("name"), "redisson_sc:{name}");
  EXPECT_EQ(PermitScripts("a{t}b", nullptr).channel, "redisson_sc:a{t}b");
}

// With `lua-replicate-commands no` a server before Redis 7 replicates a script as text, and lets it
// write nothing after a command whose answer another server would not give, unless the script has
// said before that, and before its first write, that its commands are to be replicated.
TEST(PermitScripts, WhatWritesAfterTheTimeHasItsCommandsReplicated) {
  constexpr std::string_view kAsks = "redis.replicate_commands()";
  int found = 0;
  for (const lua::Script* script : lua::allScripts()) {
    const std::size_t uncertain =
        std::min(script->body.find("redis.call('time'"), script->body.find("redis.call('hscan'"));
    // This one writes nothing.
    if (uncertain == std::string_view::npos || script->name == "inspect") {
      continue;
    }
    ++found;
    const std::size_t asks = script->body.find(kAsks);
    EXPECT_LT(asks, uncertain) << script->name;
    if (script->name.ends_with("_reconcile")) {
      EXPECT_LT(asks, script->body.find("redis.call('set'")) << script->name;
    }
  }
  EXPECT_GT(found, 10);
}

}  // namespace
}  // namespace rlock::detail
