// SPDX-License-Identifier: Apache-2.0
#include "net/handshake.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail::net {
namespace handshake_test {
namespace {

LinkSettings secured() {
  LinkSettings settings;
  settings.username = "user";
  settings.password = "secret";
  settings.clientName = "name";
  settings.database = 3;
  return settings;
}

Handshake handshake(LinkSettings settings, bool probeKill = true) {
  return {std::make_shared<const LinkSettings>(std::move(settings)),
          probeKill,
          "redis.test:6379",
          "10.0.0.5:6379"};
}

std::optional<ConnectFailure> answer(Handshake& shake, std::string_view bytes) {
  return shake.received(bytes.data(), bytes.size());
}

std::string bulk(std::string_view text) {
  return "$" + std::to_string(text.size()) + "\r\n" + std::string(text) + "\r\n";
}

const std::string kHello = "*6\r\n" + bulk("version") + bulk("7.0.15") + bulk("id") + ":12\r\n" +
                           bulk("role") + bulk("master");
const std::string kInfo = bulk("id=12 addr=10.0.0.9:4242 laddr=10.0.0.5:6379 name=name\n");
const std::string kServer =
    bulk("# Server\r\nredis_version:7.0.15\r\nrun_id:feed\r\ntcp_port:1\r\n");
// evalsha, eval, script, wait, waitaof, spublish, ssubscribe: all but waitaof.
const std::string kCommands =
    "*7\r\n*1\r\n$1\r\na\r\n*1\r\n$1\r\nb\r\n*0\r\n*0\r\n*-1\r\n*0\r\n*0\r\n";

TEST(Handshake, AsksForEverythingAtOnce) {
  Handshake shake = handshake(secured());
  const std::string sent(shake.unsent());
  std::size_t position = 0;
  for (const char* const command : {"AUTH",
                                    "user",
                                    "secret",
                                    "HELLO",
                                    "SELECT",
                                    "3",
                                    "SETNAME",
                                    "INFO",
                                    "KILL",
                                    "COMMAND",
                                    "PING"}) {
    position = sent.find(command, position);
    ASSERT_NE(position, std::string::npos) << command;
  }
  shake.sent(10);
  EXPECT_EQ(shake.unsent(), sent.substr(10));
  shake.sent(sent.size() - 10);
  EXPECT_TRUE(shake.unsent().empty());
}

TEST(Handshake, SendsNothingThatIsNotSet) {
  const Handshake shake = handshake({}, false);
  for (const char* const command : {"AUTH", "SELECT", "SETNAME", "KILL", "COMMAND"}) {
    EXPECT_EQ(shake.unsent().find(command), std::string_view::npos) << command;
  }
}

TEST(Handshake, LearnsTheSessionHoweverTheBytesAreSplit) {
  const std::string replies =
      "+OK\r\n" + kHello + "+OK\r\n+OK\r\n" + kInfo + kServer + ":0\r\n" + kCommands + "+PONG\r\n";
  for (std::size_t piece = 1; piece <= replies.size(); ++piece) {
    Handshake shake = handshake(secured());
    for (std::size_t i = 0; i < replies.size(); i += piece) {
      EXPECT_FALSE(shake.done());
      ASSERT_FALSE(answer(shake, std::string_view(replies).substr(i, piece)));
    }
    ASSERT_TRUE(shake.done()) << piece;
    EXPECT_EQ(shake.session().node, "redis.test:6379");
    EXPECT_EQ(shake.session().address, "10.0.0.5:6379");
    EXPECT_EQ(shake.session().clientId, 12U);
    EXPECT_EQ(shake.session().clientAddress, "10.0.0.9:4242");
    EXPECT_EQ(shake.session().runId, "feed");
    EXPECT_EQ(shake.session().serverVersion, "7.0.15");
    EXPECT_EQ(shake.session().role, "master");
    EXPECT_TRUE(shake.session().canKill);
    const Capabilities& found = shake.session().found;
    EXPECT_EQ(found.info, true);
    EXPECT_EQ(found.clientKill, true);
    EXPECT_EQ(found.scripts, true);
    EXPECT_EQ(found.scriptLoad, true);
    EXPECT_EQ(found.wait, true);
    EXPECT_EQ(found.waitAof, false);
    EXPECT_EQ(found.shardedPubSub, true);
  }
}

TEST(Handshake, WhatNeedsTwoCommandsIsMissingWithoutEitherOfThem) {
  const std::size_t asked = 7;
  for (std::size_t missing = 0; missing < asked; ++missing) {
    SCOPED_TRACE(missing);
    std::string commands = "*7\r\n";
    for (std::size_t i = 0; i < asked; ++i) {
      commands += i == missing ? "*-1\r\n" : "*0\r\n";
    }
    Handshake shake = handshake({});
    ASSERT_FALSE(answer(shake, kHello + kInfo + kServer + ":0\r\n" + commands + "+PONG\r\n"));
    ASSERT_TRUE(shake.done());
    const Capabilities& found = shake.session().found;
    // evalsha, eval, script, wait, waitaof, spublish, ssubscribe
    EXPECT_EQ(found.scripts, missing > 1);
    EXPECT_EQ(found.scriptLoad, missing != 2);
    EXPECT_EQ(found.wait, missing != 3);
    EXPECT_EQ(found.waitAof, missing != 4);
    EXPECT_EQ(found.shardedPubSub, missing < 5);
  }
}

TEST(Handshake, TakesTheNameAndVersionOfValkeyFromItsInfo) {
  Handshake shake = handshake({});
  ASSERT_FALSE(answer(shake,
                      kHello + kInfo +
                          bulk("redis_version:7.2.4\r\nserver_name:valkey\r\n"
                               "valkey_version:8.0.1\r\nredis_mode:standalone\r\n") +
                          "-NOPERM no\r\n-NOPERM no\r\n+PONG\r\n"));
  ASSERT_TRUE(shake.done());
  EXPECT_EQ(shake.session().found.server, "valkey");
  EXPECT_EQ(shake.session().serverVersion, "8.0.1");
  EXPECT_EQ(shake.session().found.mode, "standalone");
  EXPECT_EQ(shake.session().found.clientKill, false);
  EXPECT_EQ(shake.session().found.scripts, std::nullopt);
}

TEST(Handshake, AsksTheApplicationForTheCredentials) {
  int asked = 0;
  LinkSettings settings;
  settings.credentials = [&asked] {
    return Credentials{"app", "token-" + std::to_string(++asked)};
  };
  const auto shared = std::make_shared<const LinkSettings>(std::move(settings));
  Handshake first(shared, false, "node", "address");
  EXPECT_NE(first.unsent().find("token-1"), std::string_view::npos);
  const Handshake second(shared, false, "node", "address");
  EXPECT_NE(second.unsent().find("token-2"), std::string_view::npos);
  const auto failure = answer(first, "-ERR unknown command 'AUTH', 'app' 'token-1'\r\n");
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->errc, Errc::authenticationFailed);
  EXPECT_EQ(failure->serverMessage.find("token-1"), std::string::npos);
}

TEST(Handshake, SaysNothingOfWhatTheCredentialsFunctionThrew) {
  LinkSettings settings;
  settings.credentials = []() -> Credentials { throw std::runtime_error("vault: s3cret"); };
  try {
    const Handshake shake = handshake(settings);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.errc(), Errc::connectionFailed);
    EXPECT_EQ(std::string(error.what()).find("s3cret"), std::string::npos) << error.what();
  }
  settings.credentials = [] { return Credentials{"a user", "s3cret"}; };
  try {
    const Handshake shake = handshake(settings);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.errc(), Errc::authenticationFailed);
    EXPECT_EQ(std::string(error.what()).find("s3cret"), std::string::npos) << error.what();
  }
}

TEST(Handshake, AsksAnOldServerForTheIdOnItsOwn) {
  Handshake shake = handshake({});
  shake.sent(shake.unsent().size());
  ASSERT_FALSE(answer(shake,
                      "-ERR unknown command 'HELLO'\r\n-ERR unknown subcommand\r\n"
                      "-NOPERM no\r\n-NOPERM no\r\n-NOPERM no\r\n+PONG\r\n"));
  EXPECT_FALSE(shake.done());
  EXPECT_EQ(shake.unsent(), "*1\r\n$4\r\nROLE\r\n*2\r\n$6\r\nCLIENT\r\n$2\r\nID\r\n");
  ASSERT_FALSE(answer(shake, "-NOPERM no\r\n:7\r\n"));
  EXPECT_TRUE(shake.done());
  EXPECT_EQ(shake.session().clientId, 7U);
  EXPECT_FALSE(shake.session().canKill);
}

TEST(Handshake, GoesOnWhereTheIdCannotBeHad) {
  Handshake shake = handshake({}, false);
  ASSERT_FALSE(answer(shake, "-ERR unknown\r\n-ERR unknown\r\n+PONG\r\n"));
  EXPECT_FALSE(shake.done());
  ASSERT_FALSE(answer(shake, "-NOPERM no\r\n-NOPERM no\r\n-NOPERM no\r\n"));
  EXPECT_TRUE(shake.done());
  EXPECT_EQ(shake.session().clientId, 0U);
}

TEST(Handshake, KnowsAConnectionOnlyByWhatNoOtherHas) {
  struct Case {
    const char* address;  // connected to
    std::string info;     // reply to CLIENT INFO
    std::string server;   // reply to INFO
    std::string known;    // the client's address
    bool identified;
  };
  const std::string none = "-NOPERM no\r\n";
  for (const Case& each : {
           Case{"10.0.0.5:6379", kInfo, none, "10.0.0.9:4242", true},
           Case{"10.0.0.5:6379",
                bulk("id=12 addr=[::1]:4242 laddr=[::1]:6379 name=\n"),
                none,
                "[::1]:4242",
                true},
           Case{"10.0.0.5:6379", none, kServer, "", true},
           Case{"10.0.0.5:6379", none, none, "", false},
           // The path of a Unix socket is everybody's, and may hold anything.
           Case{"unix:/tmp/a b.sock",
                bulk("id=12 addr=/tmp/a b.sock:0 laddr=/tmp/a b.sock:0 name=\n"),
                none,
                "",
                false},
           Case{"unix:/tmp/a b.sock",
                bulk("id=12 addr=/tmp/a b.sock:0 laddr=/tmp/a b.sock:0 name=\n"),
                kServer,
                "",
                true},
           Case{"unix:/tmp/a.sock",
                bulk("id=12 addr=/tmp/a.sock:0 laddr=/tmp/a.sock:0 name=\n"),
                none,
                "",
                false},
           Case{"unix:1.1.1.1:5 x",
                bulk("id=12 addr=1.1.1.1:5 x:0 laddr=1.1.1.1:5 x:0 name=\n"),
                none,
                "",
                false},
           // A proxy that leads to one.
           Case{"10.0.0.5:6379",
                bulk("id=12 addr=/tmp/id=7 addr=1:0 laddr=/tmp/id=7 addr=1:0\n"),
                none,
                "",
                false},
       }) {
    Handshake shake(std::make_shared<const LinkSettings>(), true, "node", each.address);
    shake.sent(shake.unsent().size());
    ASSERT_FALSE(
        answer(shake, kHello + each.info + each.server + ":0\r\n" + kCommands + "+PONG\r\n"));
    EXPECT_TRUE(shake.done());
    EXPECT_EQ(shake.session().clientId, 12U);
    EXPECT_EQ(shake.session().clientAddress, each.known) << each.info;
    EXPECT_EQ(shake.session().identified(), each.identified) << each.address << ' ' << each.info;
    EXPECT_EQ(shake.session().canBeKilled(), each.identified);
  }
}

TEST(Handshake, TellsWhyTheServerCannotBeUsed) {
  struct Case {
    const char* replies;
    Errc errc;
  };
  for (const Case& each : {
           Case{"-WRONGPASS invalid username-password pair\r\n", Errc::authenticationFailed},
           Case{"-NOAUTH Authentication required.\r\n", Errc::authenticationFailed},
           Case{"-DENIED Redis is running in protected mode\r\n", Errc::denied},
           Case{"-LOADING Redis is loading the dataset in memory\r\n", Errc::connectionFailed},
           Case{"+OK\r\n-ERR unknown command\r\n-ERR DB index is out of range\r\n",
                Errc::invalidArgument},
           Case{"+OK\r\n-ERR unknown command\r\n-NOPERM this user may not\r\n", Errc::denied},
           Case{"+OK\r\n*2\r\n$4\r\nmode\r\n$8\r\nsentinel\r\n", Errc::invalidArgument},
           Case{"+OK\r\n*2\r\n$4\r\nmode\r\n$7\r\ncluster\r\n", Errc::invalidArgument},
           Case{"\x15\x03\x01\x00\x02\x02\x46", Errc::protocolError},
           Case{"+YES\r\n", Errc::protocolError},
           Case{"HTTP/1.1 400 Bad Request\r\n", Errc::protocolError},
       }) {
    Handshake shake = handshake(secured());
    const auto failure = answer(shake, each.replies);
    ASSERT_TRUE(failure) << each.replies;
    EXPECT_EQ(failure->errc, each.errc) << each.replies;
    EXPECT_FALSE(shake.done());
  }
}

TEST(Handshake, AUserNameAloneMayBeAPassword) {
  LinkSettings settings;
  settings.username = "secret";
  Handshake shake = handshake(settings);
  const auto failure = answer(shake, "-WRONGPASS invalid username-password pair\r\n");
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->errc, Errc::authenticationFailed);
  EXPECT_NE(failure->reason.find("redis://:password@host"), std::string::npos) << failure->reason;
  EXPECT_NE(failure->reason.find("without a password"), std::string::npos) << failure->reason;
}

TEST(Handshake, APasswordThatIsMissedIsAskedFor) {
  Handshake shake = handshake({});
  const auto failure =
      answer(shake, "-NOAUTH HELLO must be called with the client authenticated\r\n");
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->errc, Errc::authenticationFailed);
  EXPECT_NE(failure->reason.find("redis://:password@host"), std::string::npos) << failure->reason;
}

TEST(Handshake, KnowsTheModeByTheInfoOfAServerWithoutHello) {
  // The second is Valkey's name for it.
  for (const std::string name : {"redis_mode", "server_mode"}) {
    Handshake shake = handshake({});
    const auto failure = answer(
        shake,
        "-ERR unknown command\r\n-ERR unknown\r\n" + bulk("# Server\r\n" + name + ":cluster\r\n"));
    ASSERT_TRUE(failure) << name;
    EXPECT_EQ(failure->errc, Errc::invalidArgument) << name;
  }
}

TEST(Handshake, AsksAnOldServerForItsModeAndRoleOnTheirOwn) {
  const auto asked = [] {
    Handshake shake = handshake({}, false);
    shake.sent(shake.unsent().size());
    EXPECT_FALSE(answer(shake, "-ERR unknown command\r\n" + kInfo + "+PONG\r\n"));
    EXPECT_FALSE(shake.done());
    EXPECT_EQ(shake.unsent(), "*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n*1\r\n$4\r\nROLE\r\n");
    return shake;
  };
  const std::string standalone = bulk("redis_mode:standalone\r\nrun_id:feed\r\n");
  Handshake replica = asked();
  EXPECT_FALSE(answer(replica, standalone + "*2\r\n" + bulk("slave") + bulk("h")))
      << "it is for the connector to warn";
  EXPECT_TRUE(replica.done());
  EXPECT_EQ(replica.session().role, "slave");
  Handshake node = asked();
  EXPECT_EQ(answer(node, bulk("redis_mode:cluster\r\n")).value().errc, Errc::invalidArgument);
  Handshake mute = asked();
  EXPECT_FALSE(answer(mute, "-NOPERM no\r\n-NOPERM no\r\n"));
  EXPECT_TRUE(mute.done());
  EXPECT_EQ(mute.session().role, "");
  // Only where HELLO is refused: others than Redis may say little.
  Handshake silent = handshake({}, false);
  EXPECT_FALSE(answer(silent, "*2\r\n" + bulk("id") + ":7\r\n" + kInfo + "+PONG\r\n"));
  EXPECT_TRUE(silent.done());
}

TEST(Handshake, AClusterIsMadeOfNodesOfOne) {
  LinkSettings settings;
  settings.cluster = true;
  Handshake node = handshake(settings);
  EXPECT_FALSE(answer(node, "*2\r\n$4\r\nmode\r\n$7\r\ncluster\r\n"));
  Handshake single = handshake(settings);
  auto failure = answer(single, "*2\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n");
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->errc, Errc::invalidArgument);
  EXPECT_NE(failure->reason.find("no node of a cluster"), std::string::npos) << failure->reason;
  Handshake sentinel = handshake(settings);
  EXPECT_TRUE(answer(sentinel, "*2\r\n$4\r\nmode\r\n$8\r\nsentinel\r\n"));
  Handshake silent = handshake(settings);
  EXPECT_FALSE(answer(silent, "-ERR unknown command\r\n")) << "a server that does not say";
}

TEST(Handshake, APasswordThatIsNotNeededIsToldUnlessTheServerIsOfAnotherMode) {
  const std::string refusal =
      "-ERR AUTH <password> called without any password configured for the default user\r\n";
  struct Case {
    std::string hello;
    const char* says;
  };
  for (const Case& each : {Case{kHello, "leave it out"},
                           Case{"-ERR unknown command\r\n", "leave it out"},
                           Case{"*2\r\n$4\r\nmode\r\n$8\r\nsentinel\r\n", "redis+sentinel://"},
                           Case{"*2\r\n$4\r\nmode\r\n$7\r\ncluster\r\n", "redis+cluster://"}}) {
    Handshake shake = handshake(secured());
    ASSERT_FALSE(answer(shake, refusal));
    const auto failure = answer(shake, each.hello);
    ASSERT_TRUE(failure);
    EXPECT_NE(failure->reason.find(each.says), std::string::npos) << failure->reason;
  }
}

TEST(Handshake, SaysWhereAPasswordIsWritten) {
  LinkSettings settings;
  settings.username = "secret";
  Handshake named = handshake(settings);
  auto failure = answer(named, "-WRONGPASS invalid username-password pair\r\n");
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->reason.find("redis://:password@host"), std::string::npos) << failure->reason;
  EXPECT_EQ(failure->reason.find("secret"), std::string::npos) << failure->reason;

  Handshake none = handshake({});
  failure = answer(none, "-NOAUTH Authentication required.\r\n");
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->reason.find("redis://:password@host"), std::string::npos) << failure->reason;
}

TEST(Handshake, KnowsTlsByItsFirstByte) {
  Handshake shake = handshake(secured());
  const auto failure = answer(shake, "\x15");
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->reason.find("TLS"), std::string::npos);
}

TEST(Handshake, RefusesRepliesThatWereNotAskedFor) {
  Handshake shake = handshake({}, false);
  const auto failure = answer(shake, kHello + kInfo + "+PONG\r\n+PONG\r\n");
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->errc, Errc::protocolError);
}

TEST(Handshake, NeverRepeatsAPassword) {
  Handshake shake = handshake(secured());
  const auto failure = answer(shake, "-ERR unknown command 'AUTH', 'secret'\r\n");
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->reason.find("secret"), std::string::npos);
  EXPECT_EQ(failure->serverMessage.find("secret"), std::string::npos);
}

// The server's words are cut, and characters in them replaced, before they are told.
TEST(Handshake, NeverRepeatsAPieceOfAPassword) {
  for (const std::string& before : {std::string(), std::string(190, 'x')}) {
    LinkSettings settings;
    settings.password = "s3cr3t\tpart-of-it";
    Handshake shake = handshake(settings);
    const auto failure = answer(shake, "-ERR " + before + settings.password + " is wrong\r\n");
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->errc, Errc::authenticationFailed);
    EXPECT_EQ(failure->serverMessage.find("s3c"), std::string::npos) << failure->serverMessage;
    EXPECT_EQ(failure->serverMessage.find("part"), std::string::npos) << failure->serverMessage;
  }
}

TEST(Handshake, KeepsTheWordsBeforeTheArgumentsThatTheServerRepeats) {
  Handshake shake = handshake(secured());
  const auto failure = answer(
      shake, "-ERR unknown command `AUTH`, with args beginning with: `user`, `secret`, \r\n");
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->serverMessage, "ERR unknown command `AUTH`");
}

// They end up in logs and at terminals.
TEST(Handshake, TellsTheServersWordsWithoutControlCharacters) {
  Handshake shake = handshake({});
  const auto failure = answer(shake, "-LOADING a\tb\x1b[31m\x7f" + std::string(1000, 'x') + "\r\n");
  ASSERT_TRUE(failure);
  EXPECT_TRUE(failure->serverMessage.starts_with("LOADING a?b?[31m?xxx")) << failure->serverMessage;
  EXPECT_LE(failure->serverMessage.size(), 200U);
}

TEST(Handshake, KeepsTheServersWordsWhenThePasswordIsEmpty) {
  LinkSettings settings;
  settings.username = "user";
  Handshake shake = handshake(settings);
  const auto failure = answer(shake, "-WRONGPASS invalid username-password pair\r\n");
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->serverMessage.find("WRONGPASS"), std::string::npos);
}

LinkSettings ofMaster() {
  LinkSettings settings;
  settings.peer = Peer::master;
  return settings;
}

std::string hello(std::string_view role) {
  return "*2\r\n" + bulk("role") + bulk(role);
}

TEST(MasterHandshake, OnlyAMasterWillDo) {
  Handshake master = handshake(ofMaster(), false);
  ASSERT_FALSE(answer(master, hello("master") + kInfo + "+PONG\r\n"));
  EXPECT_TRUE(master.done());
  for (const char* const role : {"replica", "slave"}) {
    Handshake shake = handshake(ofMaster(), false);
    const auto failure = answer(shake, hello(role));
    ASSERT_TRUE(failure) << role;
    EXPECT_EQ(failure->errc, Errc::readOnly);
    EXPECT_NE(failure->reason.find("not the master"), std::string::npos) << failure->reason;
  }
}

TEST(MasterHandshake, AnOldServerIsAskedForItsRoleOnItsOwn) {
  const std::string unknown = "-ERR unknown command\r\n" + kInfo + "+PONG\r\n";
  const auto asked = [&] {
    Handshake shake = handshake(ofMaster(), false);
    shake.sent(shake.unsent().size());
    EXPECT_FALSE(answer(shake, unknown));
    EXPECT_FALSE(shake.done());
    EXPECT_EQ(shake.unsent(), "*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n*1\r\n$4\r\nROLE\r\n");
    EXPECT_FALSE(answer(shake, kServer));
    return shake;
  };
  Handshake master = asked();
  EXPECT_FALSE(answer(master, "*3\r\n" + bulk("master") + ":0\r\n*0\r\n"));
  EXPECT_TRUE(master.done());
  EXPECT_EQ(master.session().role, "master");
  Handshake replica = asked();
  EXPECT_EQ(answer(replica, "*2\r\n" + bulk("slave") + bulk("h")).value().errc, Errc::readOnly);
  Handshake mute = asked();
  EXPECT_EQ(answer(mute, "-NOPERM no\r\n").value().errc, Errc::denied);
}

LinkSettings ofSentinel() {
  LinkSettings settings;
  settings.peer = Peer::sentinel;
  settings.sentinelMaster = "main";
  settings.password = "secret";
  settings.database = 3;
  return settings;
}

TEST(SentinelHandshake, AsksForTheMasterAndTheOthersAtOnce) {
  const Handshake shake = handshake(ofSentinel(), false);
  const std::string sent(shake.unsent());
  std::size_t position = 0;
  for (const char* const word : {"AUTH",
                                 "secret",
                                 "HELLO",
                                 "GET-MASTER-ADDR-BY-NAME",
                                 "main",
                                 "SENTINELS",
                                 "main",
                                 "PING"}) {
    position = sent.find(word, position);
    ASSERT_NE(position, std::string::npos) << word;
  }
  EXPECT_EQ(sent.find("SELECT"), std::string::npos);
}

TEST(SentinelHandshake, BringsTheAnswer) {
  Handshake shake = handshake(ofSentinel(), false);
  const std::string other = "*4\r\n" + bulk("ip") + bulk("10.0.0.7") + bulk("port") + bulk("26379");
  ASSERT_FALSE(answer(shake,
                      "+OK\r\n*2\r\n" + bulk("mode") + bulk("sentinel") + "*2\r\n" +
                          bulk("10.0.0.5") + bulk("6379") + "*1\r\n" + other + "+PONG\r\n"));
  ASSERT_TRUE(shake.done());
  ASSERT_TRUE(shake.sentinelAnswer()->master);
  EXPECT_EQ(toString(*shake.sentinelAnswer()->master), "10.0.0.5:6379");
  ASSERT_EQ(shake.sentinelAnswer()->others.size(), 1U);
  EXPECT_EQ(toString(shake.sentinelAnswer()->others.front()), "10.0.0.7:26379");
}

TEST(SentinelHandshake, AnUnknownNameIsAnAnswer) {
  Handshake shake = handshake(ofSentinel(), false);
  ASSERT_FALSE(
      answer(shake, "+OK\r\n*0\r\n*-1\r\n-ERR No such master with that name\r\n+PONG\r\n"));
  ASSERT_TRUE(shake.done());
  EXPECT_FALSE(shake.sentinelAnswer()->master);
}

TEST(SentinelHandshake, OneThatIsToTellOfTheMasterMustKnowIt) {
  LinkSettings settings = ofSentinel();
  settings.mustKnowMaster = true;
  Handshake stranger = handshake(settings, false);
  const auto failure = answer(stranger, "+OK\r\n*0\r\n*-1\r\n");
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->errc, Errc::connectionFailed);
  Handshake shake = handshake(settings, false);
  EXPECT_FALSE(answer(shake, "+OK\r\n*0\r\n*2\r\n$8\r\n10.0.0.5\r\n$4\r\n6379\r\n"));
}

TEST(SentinelHandshake, WhatIsWrongIsSaid) {
  struct Case {
    const char* replies;
    Errc errc;
    const char* says;
  };
  for (const Case& each :
       {Case{"-WRONGPASS invalid username-password pair\r\n",
             Errc::authenticationFailed,
             "sentinelPassword"},
        Case{"+OK\r\n-NOAUTH Authentication required.\r\n",
             Errc::authenticationFailed,
             "sentinelPassword"},
        Case{"-ERR AUTH <password> called without any password configured\r\n*0\r\n",
             Errc::authenticationFailed,
             "leave it out"},
        Case{"-ERR max number of clients reached\r\n", Errc::connectionFailed, "not ready"},
        Case{"-DENIED Redis is running in protected mode\r\n", Errc::denied, "from here"},
        Case{"+OK\r\n*0\r\n-NOPERM no\r\n", Errc::denied, "may not ask"},
        Case{"+OK\r\n*0\r\n-IDONTKNOW Please ask another Sentinel.\r\n",
             Errc::connectionFailed,
             "where the master is"},
        Case{"+OK\r\n*0\r\n-ERR unknown command 'SENTINEL'\r\n",
             Errc::invalidArgument,
             "no Sentinel"}}) {
    Handshake shake = handshake(ofSentinel(), false);
    const auto failure = answer(shake, each.replies);
    ASSERT_TRUE(failure) << each.replies;
    EXPECT_EQ(failure->errc, each.errc) << each.replies;
    EXPECT_NE(failure->reason.find(each.says), std::string::npos) << failure->reason;
    EXPECT_EQ(failure->reason.find("secret"), std::string::npos);
  }
}

TEST(SentinelHandshake, TheSentinelsHaveAFunctionOfTheirOwn) {
  Options options;
  options.credentials = [] { return Credentials{"app", "of-the-server"}; };
  EXPECT_FALSE(sentinelSettings(options).credentials);
  int asked = 0;
  options.sentinelCredentials = [&asked] {
    return Credentials{"watcher", "token-" + std::to_string(++asked)};
  };
  const auto settings = std::make_shared<const LinkSettings>(sentinelSettings(options));
  Handshake first(settings, false, "node", "address");
  EXPECT_NE(first.unsent().find("token-1"), std::string_view::npos);
  Handshake second(settings, false, "node", "address");
  EXPECT_NE(second.unsent().find("token-2"), std::string_view::npos);
  for (const auto& [shake, reply] : {std::pair(&first, "-WRONGPASS token-1\r\n"),
                                     std::pair(&second, "+OK\r\n-NOAUTH wanted\r\n")}) {
    const auto failure = answer(*shake, reply);
    ASSERT_TRUE(failure) << reply;
    EXPECT_EQ(failure->errc, Errc::authenticationFailed) << reply;
    EXPECT_NE(failure->reason.find("sentinelCredentials"), std::string::npos) << failure->reason;
    EXPECT_EQ((failure->reason + failure->serverMessage).find("token"), std::string::npos);
  }
}

TEST(SentinelHandshake, SaysNothingOfWhatTheSentinelsFunctionThrew) {
  Options options;
  options.sentinelCredentials = []() -> Credentials { throw std::runtime_error("vault: s3cret"); };
  try {
    const Handshake shake = handshake(sentinelSettings(options), false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.errc(), Errc::connectionFailed);
    EXPECT_EQ(error.message(), "Options::sentinelCredentials threw an exception");
  }
}

}  // namespace
}  // namespace handshake_test
}  // namespace rlock::detail::net
