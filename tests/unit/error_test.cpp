// SPDX-License-Identifier: Apache-2.0
#include <rlock/error.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace rlock {
namespace {

using std::chrono::milliseconds;

constexpr int kFirstErrc = static_cast<int>(Errc::notOwner);
constexpr int kLastErrc = static_cast<int>(Errc::overloaded);

TEST(Errc, NumbersAreFrozen) {
  const std::vector<std::pair<Errc, std::string>> expected{
      {Errc::notOwner, "notOwner"},
      {Errc::reentry, "reentry"},
      {Errc::timedOut, "timedOut"},
      {Errc::cancelled, "cancelled"},
      {Errc::closed, "closed"},
      {Errc::connectionFailed, "connectionFailed"},
      {Errc::authenticationFailed, "authenticationFailed"},
      {Errc::denied, "denied"},
      {Errc::wrongType, "wrongType"},
      {Errc::outOfMemory, "outOfMemory"},
      {Errc::readOnly, "readOnly"},
      {Errc::notSynced, "notSynced"},
      {Errc::noQuorum, "noQuorum"},
      {Errc::invalidArgument, "invalidArgument"},
      {Errc::wouldDeadlock, "wouldDeadlock"},
      {Errc::forked, "forked"},
      {Errc::serverError, "serverError"},
      {Errc::protocolError, "protocolError"},
      {Errc::overloaded, "overloaded"},
  };
  int number = kFirstErrc;
  for (const auto& [errc, name] : expected) {
    EXPECT_EQ(static_cast<int>(errc), number) << name;
    EXPECT_EQ(toString(errc), name);
    ++number;
  }
  EXPECT_EQ(number, kLastErrc + 1);
  EXPECT_EQ(toString(static_cast<Errc>(0)), "unknown");
  EXPECT_EQ(toString(static_cast<Errc>(kLastErrc + 1)), "unknown");
}

TEST(Errc, EveryOneHasASentenceOfItsOwn) {
  std::set<std::string> sentences;
  for (int number = kFirstErrc; number <= kLastErrc; ++number) {
    const std::string sentence = errorCategory().message(number);
    EXPECT_NE(sentence, "unknown error") << number;
    EXPECT_TRUE(sentences.insert(sentence).second) << sentence;
  }
  EXPECT_EQ(errorCategory().message(0), "unknown error");
  EXPECT_STREQ(errorCategory().name(), "rlock");
}

TEST(Errc, CorrespondsToStandardConditions) {
  const std::vector<std::pair<Errc, std::errc>> expected{
      {Errc::notOwner, std::errc::operation_not_permitted},
      {Errc::reentry, std::errc::resource_deadlock_would_occur},
      {Errc::timedOut, std::errc::timed_out},
      {Errc::cancelled, std::errc::operation_canceled},
      {Errc::closed, std::errc::bad_file_descriptor},
      {Errc::connectionFailed, std::errc::not_connected},
      {Errc::authenticationFailed, std::errc::permission_denied},
      {Errc::denied, std::errc::permission_denied},
      {Errc::readOnly, std::errc::read_only_file_system},
      {Errc::notSynced, std::errc::resource_unavailable_try_again},
      {Errc::noQuorum, std::errc::resource_unavailable_try_again},
      {Errc::invalidArgument, std::errc::invalid_argument},
      {Errc::wouldDeadlock, std::errc::resource_deadlock_would_occur},
      {Errc::serverError, std::errc::io_error},
      {Errc::protocolError, std::errc::protocol_error},
  };
  for (const auto& [errc, condition] : expected) {
    EXPECT_EQ(std::error_code(errc), condition) << toString(errc);
  }
  for (const Errc errc : {Errc::wrongType, Errc::outOfMemory, Errc::forked}) {
    EXPECT_EQ(std::error_code(errc).default_error_condition().category(), errorCategory())
        << toString(errc);
  }
  EXPECT_NE(std::error_code(Errc::notOwner), std::errc::timed_out);
}

TEST(Error, IsASystemErrorWhoseCodeCompares) {
  try {
    throw Error(Errc::notOwner, "not held");
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code(), Errc::notOwner);
    EXPECT_EQ(error.code(), std::errc::operation_not_permitted);
    EXPECT_STREQ(error.what(), "not held");
  }
}

TEST(Error, ComposesOneLine) {
  struct Case {
    Errc errc;
    std::string what;
    ErrorContext context;
    std::string expected;
  };
  const std::vector<Case> cases{
      {Errc::closed, "", {}, "the client is closed"},
      {Errc::closed, "closing", {}, "closing"},
      {Errc::notOwner,
       "not held by owner 71b9:3",
       {.key = "orders:17",
        .owner = "71b9:3",
        .node = "127.0.0.1:6379",
        .elapsed = milliseconds(12)},
       "lock \"orders:17\": not held by owner 71b9:3 (node 127.0.0.1:6379, after 12 ms)"},
      {Errc::notOwner,
       "",
       {.key = "k", .owner = "71b9:3"},
       "lock \"k\": not held by this owner (owner 71b9:3)"},
      {Errc::timedOut,
       "",
       {.elapsed = milliseconds(0)},
       "the server did not answer in time (after 0 ms)"},
      {Errc::noQuorum,
       "",
       {.key = "pool", .kind = "semaphore"},
       "semaphore \"pool\": no majority of the nodes agreed in time"},
      {Errc::serverError,
       "",
       {.node = "unix:/tmp/r.sock", .serverMessage = "ERR no\r\nsuch \"thing\""},
       "the server answered with an error (node unix:/tmp/r.sock, server said: "
       "ERR no\\r\\nsuch \\\"thing\\\")"},
      {Errc::wrongType,
       "",
       {.key = std::string("a\0b\xff\n", 5)},
       "lock \"a\\x00b\\xff\\n\": the key holds data of another type; choose a name that nothing "
       "else uses"},
  };
  for (const Case& test : cases) {
    const Error error(test.errc, test.what, test.context);
    EXPECT_STREQ(error.what(), test.expected.c_str());
    EXPECT_EQ(error.errc(), test.errc);
  }
}

TEST(Error, GivesItsContextBack) {
  const Error error(Errc::serverError,
                    "failed",
                    {.key = std::string("a\0b", 3),
                     .owner = "u:1",
                     .node = "[::1]:6379",
                     .elapsed = milliseconds(7),
                     .serverMessage = "ERR x"});
  EXPECT_EQ(error.message(), "failed");
  EXPECT_EQ(error.key(), std::string("a\0b", 3));
  EXPECT_EQ(error.owner(), "u:1");
  EXPECT_EQ(error.node(), "[::1]:6379");
  EXPECT_EQ(error.elapsed(), milliseconds(7));
  EXPECT_EQ(error.serverMessage(), "ERR x");
  EXPECT_EQ(error.context().kind, "lock");

  const Error bare(Errc::closed);
  EXPECT_TRUE(bare.key().empty());
  EXPECT_LT(bare.elapsed(), milliseconds::zero());
}

TEST(Error, CopiesWithoutThrowingAndOutlivesItsSource) {
  static_assert(std::is_nothrow_copy_constructible_v<Error>);
  static_assert(std::is_nothrow_copy_assignable_v<Error>);
  static_assert(std::is_nothrow_move_constructible_v<Error>);
  Error outer(Errc::closed);
  {
    Error inner(Errc::denied, "no", {.key = "k"});
    outer = inner;
    // NOLINTNEXTLINE(performance-move-const-arg): a move must behave as a copy
    Error moved(std::move(inner));
    // A moved-from error in a catch block must still print.
    EXPECT_STREQ(inner.what(), moved.what());  // NOLINT(bugprone-use-after-move)
  }
  EXPECT_EQ(outer.errc(), Errc::denied);
  EXPECT_EQ(outer.code(), Errc::denied);
  EXPECT_EQ(outer.key(), "k");
  EXPECT_STREQ(outer.what(), "lock \"k\": no");
}

TEST(Error, FillsOnlyWhatIsMissing) {
  const Error inner(Errc::timedOut, "late", {.node = "a:1", .elapsed = milliseconds(3)});
  const Error outer = inner.withContext({.key = "pool",
                                         .owner = "u:1",
                                         .node = "b:2",
                                         .elapsed = milliseconds(9),
                                         .serverMessage = "LOADING",
                                         .kind = "semaphore"});
  EXPECT_STREQ(outer.what(),
               "semaphore \"pool\": late (owner u:1, node a:1, after 3 ms, server said: LOADING)");
  EXPECT_EQ(outer.errc(), Errc::timedOut);
  EXPECT_EQ(outer.withContext({.key = "other", .kind = "latch"}).key(), "pool");
  EXPECT_EQ(outer.withContext({.key = "other", .kind = "latch"}).context().kind, "semaphore");
}

TEST(Escape, ShortensToTheLimit) {
  EXPECT_EQ(detail::escapeForDisplay(std::string(120, 'x')), std::string(120, 'x'));
  EXPECT_EQ(detail::escapeForDisplay(std::string(121, 'x')), std::string(120, 'x') + "...");
  EXPECT_EQ(detail::escapeForDisplay(std::string(70'000, '\0')).size(), 123U);
  // An escape is never cut in two.
  EXPECT_EQ(detail::escapeForDisplay(std::string(118, 'x') + "\x01"),
            std::string(118, 'x') + "...");
  EXPECT_EQ(detail::escapeForDisplay("abc", 2), "ab...");
  EXPECT_EQ(detail::escapeForDisplay(""), "");
}

TEST(Escape, LeavesNothingUnprintable) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string escaped = detail::escapeForDisplay(std::string(1, static_cast<char>(byte)));
    EXPECT_FALSE(escaped.empty());
    for (const char c : escaped) {
      EXPECT_TRUE(c >= ' ' && c <= '~') << byte;
    }
    EXPECT_NE(escaped, "\"");
    EXPECT_NE(escaped, "\\");
  }
  EXPECT_EQ(detail::escapeForDisplay("a b~\t\x7f"), "a b~\\t\\x7f");
}

TEST(ErrorDocument, HasASectionPerErrc) {
  const std::filesystem::path root = RLOCK_TEST_SOURCE_DIR;
  std::ifstream file(root / "docs" / "errors.md");
  ASSERT_TRUE(file) << "docs/errors.md is missing";
  std::stringstream text;
  text << file.rdbuf();
  const std::string document = text.str();
  std::size_t last = 0;
  for (int number = kFirstErrc; number <= kLastErrc; ++number) {
    const std::string heading = "\n### " + std::to_string(number) + " " +
                                std::string(toString(static_cast<Errc>(number))) + "\n";
    const std::size_t at = document.find(heading);
    ASSERT_NE(at, std::string::npos) << heading;
    EXPECT_GT(at, last) << "out of order: " << heading;
    last = at;
    const std::string section = document.substr(at, document.find("\n### ", at + 1) - at);
    for (const char* const field : {"**Cause**", "**What to do**", "**Retry**"}) {
      EXPECT_NE(section.find(field), std::string::npos) << heading << field;
    }
  }
  EXPECT_EQ(document.find("\n### " + std::to_string(kLastErrc + 1) + " "), std::string::npos);
}

}  // namespace
}  // namespace rlock
