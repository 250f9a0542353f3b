// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace rlock::cli {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

const Finding* find(const std::vector<Finding>& findings, const std::string& subject) {
  for (const Finding& finding : findings) {
    if (finding.subject == subject) {
      return &finding;
    }
  }
  return nullptr;
}

Verdict verdictOf(const std::vector<Finding>& findings, const std::string& subject) {
  const Finding* const finding = find(findings, subject);
  EXPECT_NE(finding, nullptr) << subject;
  return finding != nullptr ? finding->verdict : Verdict::good;
}

TEST(DoctorReport, KnowsPeersByTheirAnswers) {
  EXPECT_EQ(peerOf("+PONG\r\n"), Peer::redis);
  EXPECT_EQ(peerOf("-NOAUTH Authentication required.\r\n"), Peer::redis);
  EXPECT_EQ(peerOf("-DENIED Redis is running in protected mode"), Peer::protectedMode);
  EXPECT_EQ(peerOf("-ERR max number of clients reached\r\n"), Peer::tooManyClients);
  EXPECT_EQ(peerOf(std::string_view("\x15\x03\x01\x00\x02", 5)), Peer::tls);
  EXPECT_EQ(peerOf("HTTP/1.1 400 Bad Request"), Peer::http);
  EXPECT_EQ(peerOf("SSH-2.0-OpenSSH_9.2"), Peer::ssh);
  EXPECT_EQ(peerOf(""), Peer::silent);
  EXPECT_EQ(peerOf("220 mail"), Peer::unknown);
}

TEST(DoctorReport, ReadsInfo) {
  const auto info = parseInfo("# Server\r\nredis_version:7.0.15\r\nrole:master\r\n\r\nlast:x:y");
  EXPECT_EQ(info.at("redis_version"), "7.0.15");
  EXPECT_EQ(info.at("last"), "x:y");
  EXPECT_EQ(info.size(), 3U);
}

TEST(DoctorReport, OldServers) {
  EXPECT_EQ(verdictOf(judgeServer({{"redis_version", "4.0.14"}}, {}), "version"), Verdict::bad);
  EXPECT_EQ(verdictOf(judgeServer({{"redis_version", "5.0.0"}}, {}), "version"), Verdict::good);
  EXPECT_EQ(verdictOf(judgeServer({{"redis_version", "7.2.4"}, {"valkey_version", "8.1.0"}}, {}),
                      "version"),
            Verdict::good);
}

TEST(DoctorReport, TheModeIsNamedByRedisAndByValkey) {
  for (const char* const name : {"redis_mode", "server_mode"}) {
    const auto findings = judgeServer({{name, "cluster"}}, {});
    const Finding* const mode = find(findings, "mode");
    ASSERT_NE(mode, nullptr) << name;
    EXPECT_EQ(mode->text, "cluster") << name;
  }
}

TEST(DoctorReport, NoEscapeSequenceOfAServerReachesTheTerminal) {
  const std::string hostile = "1\033]0;title\a";
  const std::map<std::string, std::string> replica{{"redis_version", hostile},
                                                   {"redis_mode", hostile},
                                                   {"role", "slave"},
                                                   {"master_host", hostile},
                                                   {"master_port", hostile},
                                                   {"maxmemory", "1"},
                                                   {"maxmemory_policy", hostile}};
  const std::map<std::string, std::string> odd{{"valkey_version", hostile}, {"role", hostile}};
  for (const auto& info : {replica, odd}) {
    const std::string text = textOf(judgeServer(info, {}), Style(ColorMode::never, 1));
    EXPECT_THAT(text, HasSubstr("title"));
    EXPECT_EQ(text.find('\033'), std::string::npos) << text;
    EXPECT_EQ(text.find('\a'), std::string::npos) << text;
  }
}

TEST(DoctorReport, LoadingAndPersistence) {
  const auto findings = judgeServer({{"loading", "1"}, {"aof_enabled", "0"}}, {});
  EXPECT_EQ(verdictOf(findings, "loading"), Verdict::bad);
  EXPECT_EQ(verdictOf(findings, "persistence"), Verdict::note);
  EXPECT_EQ(find(judgeServer({{"aof_enabled", "1"}}, {}), "persistence"), nullptr);
}

TEST(DoctorReport, MemoryThatIsNearlyFull) {
  const auto of = [](const char* used) {
    return judgeServer(
        {{"maxmemory", "100"}, {"used_memory", used}, {"maxmemory_policy", "noeviction"}}, {});
  };
  EXPECT_EQ(verdictOf(of("95"), "memory"), Verdict::note);
  EXPECT_NE(verdictOf(of("85"), "memory"), Verdict::note);
}

TEST(DoctorReport, Clocks) {
  EXPECT_EQ(verdictOf(judgeServer({}, milliseconds(-20)), "clock"), Verdict::good);
  const auto late = judgeServer({}, milliseconds(-90'000));
  EXPECT_EQ(verdictOf(late, "clock"), Verdict::note);
  EXPECT_THAT(find(late, "clock")->text, HasSubstr("1m30s behind"));
}

TEST(DoctorReport, RoundTrips) {
  using std::chrono::microseconds;
  EXPECT_EQ(judgeRoundTrips({microseconds(200), microseconds(300)}).verdict, Verdict::good);
  EXPECT_EQ(judgeRoundTrips({milliseconds(80), milliseconds(90), milliseconds(85)}).verdict,
            Verdict::note);
  EXPECT_EQ(judgeRoundTrips({milliseconds(1), milliseconds(1), milliseconds(1500)}).verdict,
            Verdict::note);
}

TEST(DoctorReport, WhatOtherErrorsMean) {
  const auto said = [](Errc errc, const std::string& server) {
    return judgeUse("lock", Error(errc, "", ErrorContext{.serverMessage = server})).advice;
  };
  EXPECT_THAT(said(Errc::serverError, "LOADING Redis is loading the dataset in memory"),
              HasSubstr("try again later"));
  EXPECT_THAT(said(Errc::serverError, "BUSY Redis is busy running a script"),
              HasSubstr("SCRIPT KILL"));
  EXPECT_THAT(said(Errc::serverError, "MISCONF Redis is configured to save RDB snapshots"),
              HasSubstr("disk"));
  EXPECT_THAT(said(Errc::wrongType, ""), HasSubstr("another NAME"));
}

TEST(DoctorReport, TextsShowWhatToDo) {
  const std::vector<Finding> findings{{Verdict::good, "role", "master", ""},
                                      {Verdict::bad, "memory", "full", "raise it"}};
  const std::string text = textOf(findings, Style(ColorMode::never, 1));
  EXPECT_THAT(text, HasSubstr("ok    role"));
  EXPECT_THAT(text, HasSubstr("-> raise it"));
  EXPECT_THAT(jsonOf(findings), HasSubstr("\"advice\": \"raise it\""));
}

}  // namespace
}  // namespace rlock::cli
