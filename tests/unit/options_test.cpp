// SPDX-License-Identifier: Apache-2.0
#include <rlock/error.hpp>
#include <rlock/options.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rlock {
namespace options_test {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// Long and unlike any other text, so that a single leaked character run is found.
constexpr std::string_view kSecret = "Tr0ub4dor";

Endpoint tcp(std::string host, std::uint16_t port = 6379) {
  Endpoint endpoint;
  endpoint.host = std::move(host);
  endpoint.port = port;
  return endpoint;
}

Endpoint local(std::string path) {
  Endpoint endpoint;
  endpoint.path = std::move(path);
  return endpoint;
}

Options valid() {
  Options options;
  options.endpoints = {tcp("localhost")};
  return options;
}

/// The message with which `call` refuses, or nothing when it does not.
std::optional<std::string> refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.errc(), Errc::invalidArgument) << error.what();
    return error.what();
  }
  return std::nullopt;
}

std::optional<std::string> refusal(const Options& options) {
  return refusal([&options] { options.validate(); });
}

std::string settingsOf(const Options& o) {
  std::string text;
  const auto add = [&text](std::string_view name, const std::string& value) {
    text.append(name).append("=").append(value).append(";");
  };
  for (const Endpoint& endpoint : o.endpoints) {
    add("endpoint", toString(endpoint));
  }
  add("username", o.username);
  add("password", o.password);
  add("clientName", o.clientName);
  add("database", std::to_string(o.database));
  for (const milliseconds time : {o.connectTimeout,
                                  o.commandTimeout,
                                  o.watchdogTimeout,
                                  o.safetyPoll,
                                  o.handOverTime,
                                  o.fairWaiterLease,
                                  o.outageTimeout,
                                  o.heartbeatInterval,
                                  o.reconnectDelayMin,
                                  o.reconnectDelayMax,
                                  o.retryDelayMin,
                                  o.retryDelayMax,
                                  o.callTimeout,
                                  o.closeTimeout,
                                  o.subscriptionLinger,
                                  o.fencingTokenRetention}) {
    add("time", std::to_string(time.count()));
  }
  add("batch", std::to_string(o.watchdogBatchSize));
  add("handOvers", std::to_string(o.handOverLimit));
  add("operations", std::to_string(o.maxOperations));
  add("spin", std::to_string(o.spin.count()));
  add("policy", std::string(toString(o.lostReplyPolicy)));
  add("level", std::string(toString(o.logLevel)));
  add("topology", std::string(toString(o.topology)));
  add("tls", o.tls ? "true" : "false");
  for (const std::string* each : {&o.tlsCaFile,
                                  &o.tlsCaPath,
                                  &o.tlsCertFile,
                                  &o.tlsKeyFile,
                                  &o.tlsKeyPassword,
                                  &o.tlsServerName}) {
    add("tls text", *each);
  }
  add("master", o.sentinelMaster);
  add("sentinelUsername", o.sentinelUsername);
  add("sentinelPassword", o.sentinelPassword);
  add("sentinelTls", o.sentinelTls ? "true" : "false");
  add("sync", toString(o.sync));
  add("time", std::to_string(o.sync.limit.count()));
  return text;
}

TEST(Endpoint, Prints) {
  EXPECT_EQ(toString(tcp("localhost")), "localhost:6379");
  EXPECT_EQ(toString(tcp("10.0.0.1", 1)), "10.0.0.1:1");
  EXPECT_EQ(toString(tcp("::1", 7000)), "[::1]:7000");
  EXPECT_EQ(toString(local("/run/redis.sock")), "unix:///run/redis.sock");
  EXPECT_EQ(tcp("a", 1), tcp("a", 1));
  EXPECT_NE(tcp("a", 1), tcp("a", 2));
}

TEST(OptionEnums, HaveNames) {
  EXPECT_EQ(toString(Topology::single), "single");
  EXPECT_EQ(toString(Topology::sentinel), "sentinel");
  EXPECT_EQ(toString(Topology::cluster), "cluster");
  EXPECT_EQ(toString(LostReplyPolicy::automatic), "automatic");
  EXPECT_EQ(toString(LostReplyPolicy::fence), "fence");
  EXPECT_EQ(toString(LostReplyPolicy::marker), "marker");
  const std::vector<std::pair<LossReason, std::string_view>> reasons{
      {LossReason::none, "none"},
      {LossReason::expired, "expired"},
      {LossReason::refused, "refused"},
      {LossReason::forced, "forced"},
      {LossReason::unreachable, "unreachable"},
      {LossReason::failover, "failover"},
      {LossReason::maxHold, "maxHold"},
      {LossReason::threadEnded, "threadEnded"},
      {LossReason::clientClosed, "clientClosed"},
  };
  for (const auto& [reason, name] : reasons) {
    EXPECT_EQ(toString(reason), name);
  }
  EXPECT_EQ(toString(static_cast<Topology>(9)), "unknown");
  EXPECT_EQ(toString(static_cast<LostReplyPolicy>(9)), "unknown");
  EXPECT_EQ(toString(static_cast<LossReason>(99)), "unknown");
}

TEST(Options, ForwardDeclaresTheLoopOnly) {
  // Repeating libuv's line must compile, as it does when a user includes <uv.h> too.
  typedef struct uv_loop_s uv_loop_t;  // NOLINT(modernize-use-using)
  uv_loop_t* const none = nullptr;
  EXPECT_EQ(Options{}.loop, none);
}

TEST(Options, IsAnAggregate) {
  const Options options{.endpoints = {tcp("a")},
                        .username = "u",
                        .connectTimeout = seconds(1),
                        .onLost = [](const LostHold&) {}};
  EXPECT_EQ(options.connectTimeout, seconds(1));
  EXPECT_EQ(options.watchdogTimeout, seconds(30));
  EXPECT_NO_THROW(options.validate());
}

struct UriCase {
  std::string uri;
  std::function<void(Options&)> expect;
};

TEST(OptionsUri, ReadsWhatItShould) {
  const std::vector<UriCase> cases{
      {"redis://localhost", [](Options&) {}},
      {"REDIS://localhost", [](Options&) {}},
      {"redis://localhost/", [](Options&) {}},
      {"redis://localhost/?", [](Options&) {}},
      {"redis://localhost?", [](Options&) {}},
      {"redis://localhost:7000", [](Options& o) { o.endpoints = {tcp("localhost", 7000)}; }},
      {"redis://localhost:1", [](Options& o) { o.endpoints = {tcp("localhost", 1)}; }},
      {"redis://localhost:65535", [](Options& o) { o.endpoints = {tcp("localhost", 65535)}; }},
      {"redis://10.0.0.1", [](Options& o) { o.endpoints = {tcp("10.0.0.1")}; }},
      {"redis://my_host-1.example.com.",
       [](Options& o) { o.endpoints = {tcp("my_host-1.example.com.")}; }},
      {"redis://[::1]", [](Options& o) { o.endpoints = {tcp("::1")}; }},
      {"redis://[2001:db8::1]:7000/3",
       [](Options& o) {
         o.endpoints = {tcp("2001:db8::1", 7000)};
         o.database = 3;
       }},
      {"redis://[::ffff:10.0.0.1]", [](Options& o) { o.endpoints = {tcp("::ffff:10.0.0.1")}; }},
      {"redis://[fe80::1%25eth0]:1", [](Options& o) { o.endpoints = {tcp("fe80::1%eth0", 1)}; }},
      {"redis://a,b:7,[::1]:8,c",
       [](Options& o) {
         o.endpoints = {tcp("a"), tcp("b", 7), tcp("::1", 8), tcp("c")};
       }},
      {"redis://localhost/15", [](Options& o) { o.database = 15; }},
      {"redis://localhost/2147483647", [](Options& o) { o.database = 2147483647; }},
      {"redis://localhost?db=4", [](Options& o) { o.database = 4; }},
      {"redis://localhost/?db=4", [](Options& o) { o.database = 4; }},
      {"redis://:pw@localhost", [](Options& o) { o.password = "pw"; }},
      {"redis://me@localhost", [](Options& o) { o.username = "me"; }},
      {"redis://me:@localhost", [](Options& o) { o.username = "me"; }},
      {"redis://@localhost", [](Options&) {}},
      {"redis://me:pw@localhost",
       [](Options& o) {
         o.username = "me";
         o.password = "pw";
       }},
      {"redis://me:p:w@localhost",
       [](Options& o) {
         o.username = "me";
         o.password = "p:w";
       }},
      {"redis://me:p@w@localhost",
       [](Options& o) {
         o.username = "me";
         o.password = "p@w";
       }},
      {"redis://me:p,w@localhost",
       [](Options& o) {
         o.username = "me";
         o.password = "p,w";
       }},
      {"redis://m%2Fe:%40%3A%2f%25%23%C3%A9+@localhost",
       [](Options& o) {
         o.username = "m/e";
         o.password = "@:/%#\xC3\xA9+";
       }},
      {"rediss://localhost", [](Options& o) { o.tls = true; }},
      {"rediss://localhost?tls=true", [](Options& o) { o.tls = true; }},
      {"redis://localhost?tls=true", [](Options& o) { o.tls = true; }},
      {"redis://localhost?tls=false", [](Options&) {}},
      {"rediss://localhost?tls-ca-file=/etc/ca%20s.pem&tls-ca-path=/etc/ssl",
       [](Options& o) {
         o.tls = true;
         o.tlsCaFile = "/etc/ca s.pem";
         o.tlsCaPath = "/etc/ssl";
       }},
      {"rediss://localhost?tls-cert-file=/c&tls-key-file=/k&tls-key-password=p%26w",
       [](Options& o) {
         o.tls = true;
         o.tlsCertFile = "/c";
         o.tlsKeyFile = "/k";
         o.tlsKeyPassword = "p&w";
       }},
      {"rediss://10.0.0.1?tls-server-name=redis.internal",
       [](Options& o) {
         o.endpoints = {tcp("10.0.0.1")};
         o.tls = true;
         o.tlsServerName = "redis.internal";
       }},
      {"unix:///run/redis.sock", [](Options& o) { o.endpoints = {local("/run/redis.sock")}; }},
      {"unix:///run/a%20b%3F@c.sock",
       [](Options& o) { o.endpoints = {local("/run/a b?@c.sock")}; }},
      {"unix://me:pw@/run/redis.sock?db=2",
       [](Options& o) {
         o.endpoints = {local("/run/redis.sock")};
         o.username = "me";
         o.password = "pw";
         o.database = 2;
       }},
      {"redis://a?sync=majority",
       [](Options& o) {
         o.endpoints = {tcp("a")};
         o.sync = SyncPolicy::majority();
       }},
      {"redis://a?sync=2&sync-timeout=500ms",
       [](Options& o) {
         o.endpoints = {tcp("a")};
         o.sync = SyncPolicy::replicas(2, milliseconds(500));
       }},
      {"redis://a?sync-timeout=2s&sync=remote-aof:3",
       [](Options& o) {
         o.endpoints = {tcp("a")};
         o.sync = SyncPolicy::remoteAof(3, seconds(2));
       }},
      {"redis://a?sync=remote-aof",
       [](Options& o) {
         o.endpoints = {tcp("a")};
         o.sync = SyncPolicy::remoteAof();
       }},
      {"redis://a?sync=local-aof",
       [](Options& o) {
         o.endpoints = {tcp("a")};
         o.sync = SyncPolicy::localAof();
       }},
      {"redis://a?sync=none", [](Options& o) { o.endpoints = {tcp("a")}; }},
      {"redis+sentinel://a,b:7?master=m",
       [](Options& o) {
         o.endpoints = {tcp("a", 26379), tcp("b", 7)};
         o.topology = Topology::sentinel;
         o.sentinelMaster = "m";
       }},
      {"redis+sentinel://:pw@a/2?master=m&tls=true",
       [](Options& o) {
         o.endpoints = {tcp("a", 26379)};
         o.password = "pw";
         o.database = 2;
         o.topology = Topology::sentinel;
         o.sentinelMaster = "m";
         o.tls = true;
       }},
      {"redis+sentinel://svc:s3cret@h1:26379,h2:1/mymaster/2",
       [](Options& o) {
         o.endpoints = {tcp("h1", 26379), tcp("h2", 1)};
         o.username = "svc";
         o.password = "s3cret";
         o.database = 2;
         o.topology = Topology::sentinel;
         o.sentinelMaster = "mymaster";
       }},
      {"redis+sentinel://a/my%2Fmaster",
       [](Options& o) {
         o.endpoints = {tcp("a", 26379)};
         o.topology = Topology::sentinel;
         o.sentinelMaster = "my/master";
       }},
      {"redis+sentinel://a/7/",
       [](Options& o) {
         o.endpoints = {tcp("a", 26379)};
         o.topology = Topology::sentinel;
         o.sentinelMaster = "7";
       }},
      {"redis+sentinel://a/m?db=3&sentinel-username=watch&sentinel-password=p%40s%20s",
       [](Options& o) {
         o.endpoints = {tcp("a", 26379)};
         o.database = 3;
         o.topology = Topology::sentinel;
         o.sentinelMaster = "m";
         o.sentinelUsername = "watch";
         o.sentinelPassword = "p@s s";
       }},
      {"redis+sentinel://a/m?sentinel-tls=true",
       [](Options& o) {
         o.endpoints = {tcp("a", 26379)};
         o.topology = Topology::sentinel;
         o.sentinelMaster = "m";
         o.sentinelTls = true;
       }},
      {"redis+cluster://a,b:7000",
       [](Options& o) {
         o.endpoints = {tcp("a"), tcp("b", 7000)};
         o.topology = Topology::cluster;
       }},
      {"redis+cluster://a/0",
       [](Options& o) {
         o.endpoints = {tcp("a")};
         o.topology = Topology::cluster;
       }},
      {"redis://localhost?client-name=svc%2D1", [](Options& o) { o.clientName = "svc-1"; }},
      {"redis://localhost?client-name=", [](Options&) {}},
      {"redis://localhost?connect-timeout=5",
       [](Options& o) { o.connectTimeout = milliseconds(5); }},
      {"redis://localhost?connect-timeout=5ms",
       [](Options& o) { o.connectTimeout = milliseconds(5); }},
      {"redis://localhost?connect-timeout=5s", [](Options& o) { o.connectTimeout = seconds(5); }},
      {"redis://localhost?connect-timeout=5m", [](Options& o) { o.connectTimeout = minutes(5); }},
      {"redis://localhost?connect-timeout=1h", [](Options& o) { o.connectTimeout = hours(1); }},
      {"redis://localhost?watchdog-timeout=365d",
       [](Options& o) { o.watchdogTimeout = hours(365 * 24); }},
      {"redis://localhost?connect-timeout=1500us",
       [](Options& o) { o.connectTimeout = milliseconds(2); }},
      {"redis://localhost?connect-timeout=1ns",
       [](Options& o) { o.connectTimeout = milliseconds(1); }},
      {"redis://localhost?spin=0", [](Options& o) { o.spin = microseconds(0); }},
      {"redis://localhost?spin=7us", [](Options& o) { o.spin = microseconds(7); }},
      {"redis://localhost?spin=1", [](Options& o) { o.spin = milliseconds(1); }},
      {"redis://localhost?command-timeout=11&safety-poll=12&fair-waiter-lease=1300"
       "&outage-timeout=14&heartbeat-interval=15&reconnect-delay-min=16&reconnect-delay-max=17"
       "&retry-delay-min=18&retry-delay-max=19&call-timeout=24&close-timeout=20"
       "&subscription-linger=21&fencing-token-retention=25h"
       "&watchdog-batch-size=22&max-operations=23&watchdog-timeout=230&lost-reply-policy=marker&"
       "log-level=trace&hand-over-limit=26&hand-over-time=27",
       [](Options& o) {
         o.handOverLimit = 26;
         o.handOverTime = milliseconds(27);
         o.commandTimeout = milliseconds(11);
         o.safetyPoll = milliseconds(12);
         o.fairWaiterLease = milliseconds(1300);
         o.outageTimeout = milliseconds(14);
         o.heartbeatInterval = milliseconds(15);
         o.reconnectDelayMin = milliseconds(16);
         o.reconnectDelayMax = milliseconds(17);
         o.retryDelayMin = milliseconds(18);
         o.retryDelayMax = milliseconds(19);
         o.callTimeout = milliseconds(24);
         o.closeTimeout = milliseconds(20);
         o.subscriptionLinger = milliseconds(21);
         o.fencingTokenRetention = hours(25);
         o.watchdogBatchSize = 22;
         o.maxOperations = 23;
         o.watchdogTimeout = milliseconds(230);
         o.lostReplyPolicy = LostReplyPolicy::marker;
         o.logLevel = LogLevel::trace;
       }},
      {"redis://localhost?lost-reply-policy=fence&log-level=error",
       [](Options& o) {
         o.lostReplyPolicy = LostReplyPolicy::fence;
         o.logLevel = LogLevel::error;
       }},
  };
  for (const UriCase& test : cases) {
    Options expected = valid();
    test.expect(expected);
    try {
      EXPECT_EQ(settingsOf(Options::fromUri(test.uri)), settingsOf(expected)) << test.uri;
    } catch (const Error& error) {
      ADD_FAILURE() << test.uri << ": " << error.what();
    }
    EXPECT_EQ(refusal(expected), std::nullopt) << test.uri;
  }
}

struct BadUri {
  std::string uri;
  std::string says;
};

TEST(OptionsUri, RefusesAndNamesThePart) {
  const std::string kibi(1024, 'a');
  const std::vector<BadUri> cases{
      {"", "no scheme"},
      {"localhost:6379", "no scheme; write redis://host:6379"},
      {"redis:/localhost", "no scheme"},
      {"http://localhost", "unknown scheme \"http\""},
      {"redis-sentinel://localhost", "redis+sentinel://host:26379/mymaster"},
      {"redis://localhost?watchdog-timeout=30", "write a unit, as in 30s"},
      {"redis+tls://localhost", "unknown scheme \"redis+tls\""},
      {"://localhost", "unknown scheme \"\""},
      {"redis://", "the host is empty"},
      {"redis:///3", "the host is empty; write redis://host:6379"},
      {"redis://:6379", "the host is empty"},
      {"redis://me:Tr0ub4dor@", "the host is empty"},
      {"redis://a,,b", "the host is empty"},
      {"redis://a,", "the host is empty"},
      {"redis://,a", "the host is empty"},
      {"redis://a:0", "the port after host \"a\" is out of range; allowed: 1 to 65535"},
      {"redis://a:70000", "the port after host \"a\" is out of range; allowed: 1 to 65535"},
      {"redis://a:65536", "is out of range"},
      {"redis://a:99999999999999999999", "is out of range"},
      {"redis://a:", "port after host \"a\" is not a number"},
      {"redis://a:b", "port after host \"a\" is not a number; write redis://host:6379"},
      {"redis://a:-1", "port after host \"a\" is not a number"},
      {"redis://a:6379x", "port after host \"a\" is not a number"},
      {"redis://a,b:x", "port after host \"b\" is not a number"},
      {"redis://::1", "written in brackets"},
      {"redis://::1:6379", "written in brackets"},
      {"redis://[::1", "no closing ']'"},
      {"redis://[::1]6379", "after the ']'"},
      {"redis://[::1]:", "is not a number"},
      {"redis://[localhost]", "no IPv6 address"},
      {"redis://[]", "no IPv6 address"},
      {"redis://[::1%]", "'%'"},
      {"redis://[::1%25]", "no IPv6 address"},
      {"redis://a*b", "the host contains characters"},
      {"redis://a%20b", "the host contains characters"},
      {"redis://h\xC3\xB6st", "the host contains characters"},
      {"redis://a b", "a space or control character at position 10; take it out, or write it"},
      {"redis://a\tb", "a space or control character"},
      {"redis://a\n", "a space or control character"},
      {std::string("redis://a\0b", 11), "a space or control character at position 10"},
      {"redis://a#b", "%23"},
      {"redis://" + kibi, "longer than 253"},
      {"redis://a/x", "database \"x\" is not a number; write one, as in redis://host:6379/0"},
      {"redis://a/1x", "database \"1x\" is not a number"},
      {"redis://a?sync=all", "parameter sync: \"all\" is not none, a number of replicas"},
      {"redis://a?sync=remote-aof:x", "parameter sync: \"remote-aof:x\" is not none"},
      {"redis://a?sync=0", "option sync (URI parameter sync) is 0; allowed: none, 1 to 1000"},
      {"redis://a?sync=1001", "option sync (URI parameter sync) is 1001; allowed: none"},
      {"redis://a?sync-timeout=0", "(URI parameter sync-timeout) is 0ms; allowed: 1ms to 1h"},
      {"redis://a?sync-timeout=2h", "(URI parameter sync-timeout) is 2h; allowed: 1ms to 1h"},
      {"redis://a/1/2", "database \"1/2\" is not a number"},
      {"redis://a/-1", "database -1 is out of range; allowed: 0 to 2147483647"},
      {"redis://a/2147483648", "database 2147483648 is out of range"},
      {"redis://a?db=-1", "database -1 is out of range"},
      {"redis://a?db=", "database \"\" is not a number"},
      {"redis://a/1?db=1", "the database is given twice"},
      {"redis+cluster://a/1", "a cluster has database 0 only"},
      {"redis+sentinel://a", "sentinelMaster is empty"},
      {"redis+sentinel://a/", "sentinelMaster is empty"},
      {"redis+sentinel://a?master=", "sentinelMaster is empty"},
      {"redis+sentinel://a/m/x", "database \"x\" is not a number"},
      {"redis+sentinel://a/m/1/2", "database \"1/2\" is not a number"},
      {"redis+sentinel://a/m/1?db=1", "the database is given twice"},
      {"redis+sentinel://a/m?master=n", "database \"m\" is not a number"},
      {"redis+sentinel://a/m%00", "the master's name contains a NUL byte"},
      {"redis+sentinel://a/m?sentinel-username=w%20x", "sentinel-username) is not allowed"},
      {"redis+sentinel://a/m?sentinel-password=Tr0ub4dor%00", "sentinel-password contains a NUL"},
      {"redis+sentinel://a/m?sentinel-password=x&Tr0ub4dor",
       "a parameter after sentinel-password is unknown; in a value '&' is written %26; known: "},
      {"redis+sentinel://a/m?sentinel-username=x&db=1&Tr0ub4dor=1",
       "a parameter after sentinel-username is unknown"},
      {"rediss://a?tls-key-password=x&Tr0ub4dor", "a parameter after tls-key-password is unknown"},
      {"redis+sentinel://a/m?sentinel-password=x&password=Tr0ub4dor",
       "unknown parameter \"password\"; user name and password stand before the host"},
      {"redis+sentinel://a/m?sentinel-tls=1", "parameter sentinel-tls"},
      {"redis://a?sentinel-password=Tr0ub4dor",
       "sentinelPassword, sentinelCredentials or sentinelTls is given"},
      {"redis+sentinel://a?master=a%20b", "sentinelMaster (URI parameter master) is \"a b\""},
      {"redis://a?master=m", "the topology is single"},
      {"redis+cluster://a?master=m", "the topology is cluster"},
      {"rediss://a?tls=false", "rediss means TLS"},
      {"unix:///s?tls=true", "is a Unix socket"},
      {"redis://a?tls=1", "parameter tls: \"1\" is not true or false"},
      {"unix://", "the socket path is empty"},
      {"unix:///", "the socket path is empty"},
      {"unix://?db=1", "the socket path is empty"},
      {"unix://run/redis.sock", "three slashes"},
      {"unix:///a%00b", "the socket path contains a NUL byte (%00)"},
      {"unix:///a%zz", "the socket path contains '%'"},
      {"unix:///" + kibi, "longer than 107"},
      {"redis://m%00e@a", "the user name contains a NUL byte"},
      {"redis://:Tr0ub4dor%00@a", "the password contains a NUL byte"},
      {"redis://:Tr0ub4dor%@a", "the password contains '%'"},
      {"redis://:Tr0ub4dor%4@a", "the password contains '%'"},
      {"redis://:Tr0ub4dor%g0@a", "the password contains '%'"},
      {"redis://:%0gTr0ub4dor@a", "the password contains '%'"},
      {"redis://m%20e:Tr0ub4dor@a", "option username contains a space"},
      {"redis://me:Tr0ub4dor/x@a", "'@' after the host part"},
      {"redis://me:/Tr0ub4dor@a", "'@' after the host part"},
      {"redis://me:?Tr0ub4dor=1@a", "'@' after the host part"},
      {"redis://me:Tr0ub4dor#x@a", "%23"},
      {"redis://me:Tr0ub4dor x@a", "a space or control character"},
      {"redis://me:p@Tr0ub4dor/x@a", "'@' after the host part"},
      {"redis://me:Tr0ub4dor", "is not a number"},
      {"redis://:Tr0ub4dor", "the host is empty"},
      {"redis://Tr0ub4dor!", "the host contains characters"},
      {"redis://Tr0ub4dor:x:a", "several ':'"},
      {"unix://me:Tr0ub4dor/x@/run/s", "three slashes"},
      {"redis://a?password=Tr0ub4dor", "unknown parameter \"password\""},
      {"redis://me:Tr0ub4dor@a:0", "the port after host \"a\" is out of range"},
      {"redis://me:Tr0ub4dor@a/x", "database \"x\" is not a number"},
      {"redis://me:Tr0ub4dor@a?spin=2h", "option spin (URI parameter spin) is 2h"},
      {"redis://a?nope=1", "unknown parameter \"nope\""},
      {"redis://a?password=x", "as in redis://name:password@host:6379; known: client-name"},
      {"redis://a?connectTimeout=1", "unknown parameter \"connectTimeout\""},
      {"redis://a?Connect-Timeout=1", "unknown parameter \"Connect-Timeout\""},
      {"redis://a?log=1", "unknown parameter \"log\""},
      {"redis://a?(none)=1", "unknown parameter \"(none)\""},
      {"redis://a?=1", "unknown parameter \"\""},
      {"redis://a?spin=1&&db=1", "unknown parameter \"\""},
      {"redis://a?nope=1", "known: client-name, db, name-prefix, connect, connect-timeout"},
      {"redis://a?spin", "parameter spin has no value"},
      {"redis://a?spin=1&spin=1", "parameter spin is given twice"},
      {"redis://a?db=1&db=2", "parameter db is given twice"},
      {"redis://a?connect-timeout=", "parameter connect-timeout: \"\" is not a duration"},
      {"redis://a?connect-timeout=s", "parameter connect-timeout: \"s\" is not a duration"},
      {"redis://a?connect-timeout=+5", "parameter connect-timeout: \"+5\" is not a duration"},
      {"redis://a?connect-timeout=5x", "parameter connect-timeout: \"5x\" is not a whole number"},
      {"redis://a?connect-timeout=5%20s", "\"5 s\" is not a whole number"},
      {"redis://a?connect-timeout=5S", "\"5S\" is not a whole number"},
      {"redis://a?connect-timeout=1.5s", "\"1.5s\" is not a whole number"},
      {"redis://a?connect-timeout=1e3", "\"1e3\" is not a whole number"},
      {"redis://a?connect-timeout=99999999999999999999", "is too large"},
      {"redis://a?connect-timeout=9223372036854775807", "is for ever; allowed: 1ms to 1h"},
      {"redis://a?connect-timeout=9223372036854775806h", "is for ever; allowed: 1ms to 1h"},
      {"redis://a?connect-timeout=0", "connect-timeout) is 0ms; allowed: 1ms to 1h"},
      {"redis://a?connect-timeout=-5s", "connect-timeout) is -5s; allowed: 1ms to 1h"},
      {"redis://a?call-timeout=-1us", "call-timeout) is -1ms; allowed: 0ms to 1h"},
      {"redis://a?close-timeout=-999999ns", "close-timeout) is -1ms; allowed: 0ms to 1h"},
      {"redis://a?fencing-token-retention=-1us", "is -1ms; allowed: 0ms, 1s to 365d"},
      {"redis://a?spin=-1ns", "spin) is -1us; allowed: 0ms to 10ms"},
      {"redis://a?connect-timeout=5%zz", "the value of parameter connect-timeout contains '%'"},
      {"redis://a?watchdog-batch-size=x", "watchdog-batch-size: \"x\" is not a number"},
      {"redis://a?watchdog-batch-size=5ms", "watchdog-batch-size: \"5ms\" is not a number"},
      {"redis://a?watchdog-batch-size=99999999999", "is out of range; allowed: 1 to 1000"},
      {"redis://a?watchdog-batch-size=0", "watchdog-batch-size) is 0; allowed: 1 to 1000"},
      {"redis://a?log-level=loud", "not one of trace, debug, info, warning, error"},
      {"redis://a?lost-reply-policy=", "not one of automatic, fence, marker"},
      {"redis://a?client-name=a%20b", "clientName (URI parameter client-name) is \"a b\""},
      {"redis://a?client-name=a%0Ab", "clientName (URI parameter client-name) is \"a\\nb\""},
      {"redis://a?client-name=a%00b", "contains a NUL byte"},
  };
  for (const BadUri& test : cases) {
    const auto message = refusal([&test] { static_cast<void>(Options::fromUri(test.uri)); });
    ASSERT_TRUE(message) << "accepted: " << test.uri;
    EXPECT_NE(message->find(test.says), std::string::npos) << test.uri << ": " << *message;
    EXPECT_EQ(message->find(kSecret), std::string::npos) << *message;
  }
}

// Without its '@' the URI has a port that is the password.
TEST(OptionsUri, NeverQuotesThePasswordBeforeAForgottenAt) {
  const auto message = refusal([] { static_cast<void>(Options::fromUri("redis://svc:90210433")); });
  ASSERT_TRUE(message);
  EXPECT_NE(message->find("the port after host \"svc\" is out of range"), std::string::npos)
      << *message;
  EXPECT_EQ(message->find("90210433"), std::string::npos) << *message;
}

TEST(OptionsUri, NeverCrashesOnDamagedInput) {
  const std::string good =
      "rediss://us%65r:p%40ss@h1:6380,[fe80::1%25lo]:7,h3/12?spin=5us&log-level=debug&db";
  for (std::size_t length = 0; length <= good.size(); ++length) {
    static_cast<void>(
        refusal([&] { static_cast<void>(Options::fromUri(good.substr(0, length))); }));
  }
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string damaged = good;
      damaged[at] = static_cast<char>(byte);
      static_cast<void>(refusal([&] { static_cast<void>(Options::fromUri(damaged)); }));
    }
  }
}

struct Boundary {
  std::string option;
  std::function<void(Options&)> bad;
  std::string value;
  std::string range;
};

template <class Unit>
void addBoundaries(std::vector<Boundary>& bad,
                   std::vector<std::function<void(Options&)>>& good,
                   const std::string& name,
                   Unit Options::*member,
                   Unit low,
                   Unit high,
                   const std::string& range) {
  const auto set = [member](Unit value) {
    return [member, value](Options& options) { options.*member = value; };
  };
  good.push_back(set(low));
  good.push_back(set(high));
  bad.push_back({name, set(low - Unit(1)), "", range});
  bad.push_back({name, set(high + Unit(1)), "", range});
  bad.push_back({name, set(Unit::max()), "for ever", range});
  bad.push_back({name, set(Unit::min()), "", range});
}

TEST(OptionsValidate, EnforcesEveryTimeRange) {
  std::vector<Boundary> bad;
  std::vector<std::function<void(Options&)>> good;
  const auto add = [&](const std::string& name,
                       milliseconds Options::*member,
                       milliseconds low,
                       milliseconds high,
                       const std::string& range) {
    addBoundaries(bad, good, name, member, low, high, range);
  };
  constexpr milliseconds kMs(1);
  add("connectTimeout", &Options::connectTimeout, kMs, hours(1), "1ms to 1h");
  add("commandTimeout", &Options::commandTimeout, kMs, hours(1), "1ms to 1h");
  add("watchdogTimeout", &Options::watchdogTimeout, 100 * kMs, hours(8760), "100ms to 365d");
  add("safetyPoll", &Options::safetyPoll, 10 * kMs, hours(1), "10ms to 1h");
  add("handOverTime", &Options::handOverTime, 0 * kMs, hours(1), "0ms to 1h");
  add("fairWaiterLease", &Options::fairWaiterLease, seconds(1), minutes(5), "1s to 5m");
  add("outageTimeout", &Options::outageTimeout, kMs, hours(8760), "1ms to 365d");
  add("heartbeatInterval", &Options::heartbeatInterval, 10 * kMs, hours(1), "10ms to 1h");
  add("reconnectDelayMin", &Options::reconnectDelayMin, kMs, hours(1), "1ms to 1h");
  add("reconnectDelayMax", &Options::reconnectDelayMax, kMs, hours(1), "1ms to 1h");
  add("retryDelayMin", &Options::retryDelayMin, kMs, hours(1), "1ms to 1h");
  add("retryDelayMax", &Options::retryDelayMax, kMs, hours(1), "1ms to 1h");
  add("callTimeout", &Options::callTimeout, 0 * kMs, hours(1), "0ms to 1h");
  add("closeTimeout", &Options::closeTimeout, 0 * kMs, hours(1), "0ms to 1h");
  add("subscriptionLinger", &Options::subscriptionLinger, 0 * kMs, hours(1), "0ms to 1h");
  add("fencingTokenRetention",
      &Options::fencingTokenRetention,
      seconds(1),
      hours(8760),
      "0ms, 1s to 365d");
  good.push_back([](Options& options) { options.fencingTokenRetention = milliseconds(0); });
  addBoundaries(
      bad, good, "spin", &Options::spin, microseconds(0), microseconds(10'000), "0ms to 10ms");
  for (const auto& set : good) {
    Options options = valid();
    // The two ends of a back-off are checked against each other elsewhere.
    options.reconnectDelayMin = options.retryDelayMin = kMs;
    options.reconnectDelayMax = options.retryDelayMax = hours(1);
    set(options);
    EXPECT_EQ(refusal(options), std::nullopt);
  }
  for (const Boundary& test : bad) {
    Options options = valid();
    test.bad(options);
    const auto message = refusal(options);
    ASSERT_TRUE(message) << test.option;
    EXPECT_EQ(message->find("option " + test.option + " "), 0U) << *message;
    EXPECT_NE(message->find(" is " + test.value), std::string::npos) << *message;
    EXPECT_TRUE(message->ends_with("; allowed: " + test.range)) << *message;
  }
}

TEST(OptionsValidate, RefusesEverythingElseOutOfRange) {
  struct Case {
    std::function<void(Options&)> bad;
    std::string says;
  };
  const std::string nul("a\0b", 3);
  const std::vector<Case> cases{
      {[](Options& o) { o.endpoints.clear(); },
       "option endpoints is empty; at least one address is needed, as Options::fromUri("},
      {[](Options& o) { o.endpoints = {tcp("redis://me:Tr0ub4dor@h")}; },
       "a URI stands where the host belongs"},
      {[](Options& o) { o.endpoints = {tcp("redis://localhost")}; },
       "a URI stands where the host belongs; write Options::fromUri("},
      {[](Options& o) { o.endpoints.push_back(tcp("b", 0)); },
       "option endpoints: the port of \"b\" is 0; allowed: 1 to 65535"},
      {[](Options& o) { o.endpoints = {tcp("")}; }, "the host is empty"},
      {[](Options& o) { o.endpoints = {tcp("a b")}; }, "\"a b\": the host contains"},
      {[](Options& o) { o.endpoints = {tcp("localhost:6379")}; }, "the port is a field of its own"},
      {[](Options& o) { o.endpoints = {tcp("[::1]")}; }, "is no IPv6 address"},
      {[](Options& o) { o.endpoints = {tcp("me:Tr0ub4dor@h")}; }, "is no IPv6 address"},
      {[&](Options& o) { o.endpoints = {tcp(nul)}; }, "the host contains"},
      {[](Options& o) { o.endpoints = {tcp(std::string("::1\0x", 5))}; }, "is no IPv6 address"},
      {[](Options& o) { o.endpoints = {tcp("::1%")}; }, "is no IPv6 address"},
      {[](Options& o) { o.endpoints = {tcp(std::string(254, 'a'))}; }, "longer than 253"},
      {[](Options& o) { o.endpoints = {local(std::string(108, 'a'))}; }, "longer than 107"},
      {[&](Options& o) { o.endpoints = {local(nul)}; }, "contains a NUL byte"},
      {[](Options& o) {
         o.endpoints = {local("/s")};
         o.tls = true;
       },
       "option tls is true, but endpoint \"/s\" is a Unix socket"},
      {[](Options& o) { o.tlsCaFile = "/ca"; },
       "option tlsCaFile (URI parameter tls-ca-file) is set, but tls is false"},
      {[](Options& o) { o.tlsServerName = "a"; }, "option tlsServerName (URI parameter"},
      {[](Options& o) { o.tlsKeyPassword = "Tr0ub4dor"; },
       "option tlsKeyPassword (URI parameter tls-key-password) is set, but tls is false"},
      {[](Options& o) {
         o.tls = true;
         o.tlsKeyFile = "/k";
       },
       "option tlsKeyFile is set, but tlsCertFile is empty"},
      {[](Options& o) {
         o.tls = true;
         o.tlsKeyPassword = "Tr0ub4dor";
       },
       "option tlsKeyPassword is set, but tlsCertFile is empty"},
      {[](Options& o) {
         o.tls = true;
         o.tlsCertFile = "/c";
         o.tlsKeyPassword = std::string("Tr0ub4dor\0", 10);
       },
       "option tlsKeyPassword (URI parameter tls-key-password) is not shown; allowed: no NUL"},
      {[&](Options& o) {
         o.tls = true;
         o.tlsCaFile = nul;
       },
       "option tlsCaFile (URI parameter tls-ca-file) is \""},
      {[](Options& o) {
         o.tls = true;
         o.tlsServerName = "https://a";
       },
       "option tlsServerName: \"https://a\": a URI stands where the host belongs"},
      {[](Options& o) { o.username = "a b"; }, "option username contains"},
      {[&](Options& o) { o.username = nul; }, "option username contains"},
      {[](Options& o) { o.password = std::string("Tr0ub4dor\0", 10); },
       "option password contains a NUL byte"},
      {[](Options& o) { o.clientName = "a b"; },
       "option clientName (URI parameter client-name) is \"a b\"; allowed: up to 256 printable"},
      {[&](Options& o) { o.clientName = nul; }, "option clientName"},
      {[](Options& o) { o.clientName = "a\n"; }, "option clientName"},
      {[](Options& o) { o.clientName = "\xC3\xA9"; }, "option clientName"},
      {[](Options& o) { o.clientName = std::string(257, 'a'); }, "option clientName"},
      {[](Options& o) { o.database = -1; },
       "option database (URI parameter db) is -1; allowed: 0 to 2147483647"},
      {[](Options& o) { o.watchdogBatchSize = 0; },
       "option watchdogBatchSize (URI parameter watchdog-batch-size) is 0; allowed: 1 to 1000"},
      {[](Options& o) { o.watchdogBatchSize = 1001; }, "is 1001; allowed: 1 to 1000"},
      {[](Options& o) { o.maxOperations = 0; },
       "option maxOperations (URI parameter max-operations) is 0; allowed: 1 to 10000000"},
      {[](Options& o) { o.maxOperations = 10'000'001; }, "is 10000001; allowed: 1 to 10000000"},
      {[](Options& o) { o.reconnectDelayMin = milliseconds(2001); },
       "option reconnectDelayMin is 2001ms, which is more than reconnectDelayMax, 2s"},
      {[](Options& o) { o.retryDelayMax = milliseconds(19); },
       "option retryDelayMin is 20ms, which is more than retryDelayMax, 19ms"},
      {[](Options& o) { o.lostReplyPolicy = static_cast<LostReplyPolicy>(3); },
       "is unknown; allowed: automatic, fence, marker"},
      {[](Options& o) { o.logLevel = static_cast<LogLevel>(-1); },
       "is unknown; allowed: trace, debug, info, warning, error"},
      {[](Options& o) { o.topology = static_cast<Topology>(3); },
       "option topology is unknown; allowed: single, sentinel, cluster"},
      {[](Options& o) {
         o.topology = Topology::cluster;
         o.database = 1;
       },
       "option database is 1; a cluster has database 0 only"},
      {[](Options& o) { o.topology = Topology::sentinel; }, "option sentinelMaster"},
      {[](Options& o) { o.sentinelMaster = "m"; }, "but the topology is single"},
      {[](Options& o) { o.sentinelUsername = "u"; }, "but the topology is single"},
      {[](Options& o) { o.sentinelPassword = kSecret; }, "but the topology is single"},
      {[](Options& o) { o.sentinelCredentials = [] { return Credentials{}; }; },
       "sentinelCredentials or sentinelTls is given, but the topology is single"},
      {[](Options& o) { o.sentinelTls = true; }, "but the topology is single"},
      {[](Options& o) {
         o.topology = Topology::sentinel;
         o.sentinelMaster = "m";
         o.sentinelTls = true;
         o.endpoints = {local("/s")};
       },
       "option sentinelTls is true, but endpoint \"/s\" is a Unix socket"},
      {[](Options& o) {
         o.topology = Topology::cluster;
         o.sentinelCredentials = [] { return Credentials{}; };
       },
       "sentinelCredentials or sentinelTls is given, but the topology is cluster"},
      {[](Options& o) {
         o.topology = Topology::sentinel;
         o.sentinelMaster = "m";
         o.sentinelPassword = std::string(kSecret) + std::string(1, '\0');
       },
       "option sentinelPassword (URI parameter sentinel-password) is not allowed"},
  };
  for (const Case& test : cases) {
    Options options = valid();
    test.bad(options);
    const auto message = refusal(options);
    ASSERT_TRUE(message) << test.says;
    EXPECT_NE(message->find(test.says), std::string::npos) << *message;
    EXPECT_EQ(message->find('\0'), std::string::npos);
    EXPECT_EQ(message->find(kSecret), std::string::npos) << *message;
  }
}

TEST(OptionsValidate, AcceptsTheOddButLegal) {
  const std::vector<std::function<void(Options&)>> cases{
      [](Options&) {},
      [](Options& o) {
        o.endpoints = {tcp("::1"), tcp("fe80::1%eth0"), local("relative.sock")};
      },
      [](Options& o) { o.endpoints = {tcp(std::string(253, 'a'))}; },
      [](Options& o) { o.endpoints = {local(std::string(107, 'a'))}; },
      [](Options& o) { o.clientName = std::string(256, '~'); },
      [](Options& o) { o.password = "a b\n\xff"; },
      [](Options& o) { o.reconnectDelayMin = o.reconnectDelayMax; },
      // The endpoints are those of the Sentinels, and tls is about the server.
      [](Options& o) {
        o.topology = Topology::sentinel;
        o.sentinelMaster = "m";
        o.tls = true;
        o.endpoints = {local("/s")};
      },
      [](Options& o) { o.database = 2147483647; },
      [](Options& o) { o.watchdogBatchSize = 1; },
      [](Options& o) { o.watchdogBatchSize = 1000; },
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Options options = valid();
    cases[i](options);
    EXPECT_EQ(refusal(options), std::nullopt) << "case " << i;
  }
}

std::vector<std::string> cellsOf(const std::string& line) {
  std::vector<std::string> cells;
  std::size_t start = 1;
  for (std::size_t bar = line.find('|', start); bar != std::string::npos;
       start = bar + 1, bar = line.find('|', start)) {
    std::string cell = line.substr(start, bar - start);
    std::erase(cell, '`');
    const std::size_t first = cell.find_first_not_of(' ');
    const std::size_t last = cell.find_last_not_of(' ');
    cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
  }
  return cells;
}

TEST(ConfigurationDocument, AgreesWithTheCode) {
  const std::filesystem::path root = std::filesystem::path(RLOCK_TEST_SOURCE_DIR);
  std::ifstream file(root / "docs" / "configuration.md");
  ASSERT_TRUE(file) << "docs/configuration.md is missing";
  std::map<std::string, std::vector<std::string>> documented;
  std::vector<std::string> order;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("|")) {
      inside = false;
      continue;
    }
    const std::vector<std::string> cells = cellsOf(line);
    if (cells.at(0) == "Option") {
      inside = true;
    } else if (inside && !cells.at(0).starts_with("-")) {
      ASSERT_EQ(cells.size(), 6U) << line;
      EXPECT_TRUE(documented.emplace(cells[0], cells).second) << "twice: " << cells[0];
      order.push_back(cells[0]);
      EXPECT_FALSE(cells[5].empty()) << "no meaning: " << cells[0];
    }
  }
  std::vector<std::string> expectedOrder;
  for (const detail::OptionRow& row : detail::optionRows()) {
    expectedOrder.push_back(row.name);
    const auto found = documented.find(row.name);
    ASSERT_NE(found, documented.end()) << row.name << " is not documented";
    const std::vector<std::string>& cells = found->second;
    EXPECT_EQ(cells[1], row.uriParameter) << row.name;
    EXPECT_EQ(cells[2], row.unit) << row.name;
    EXPECT_EQ(cells[3], row.defaultValue.empty() ? "empty" : row.defaultValue) << row.name;
    EXPECT_EQ(cells[4], row.range) << row.name;
  }
  EXPECT_EQ(order, expectedOrder);
}

TEST(Options, CredentialsComeFromOnePlaceAndNamesAreMappedInOneWay) {
  Options options = Options::fromUri("redis://host?connect=lazy&name-prefix=app%3A");
  EXPECT_EQ(options.connect, ConnectMode::lazy);
  EXPECT_EQ(options.namePrefix, "app:");
  const auto refused = [&]() -> std::string {
    try {
      options.validate();
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.errc(), Errc::invalidArgument);
      return error.what();
    }
  };
  options.credentials = [] { return Credentials{}; };
  EXPECT_EQ(refused(), "");
  options.password = "s3cret";
  EXPECT_NE(refused().find("option credentials"), std::string::npos);
  EXPECT_EQ(refused().find("s3cret"), std::string::npos);
  options.password.clear();
  options.username = "user";
  EXPECT_NE(refused().find("option credentials"), std::string::npos);
  options.username.clear();
  options.topology = Topology::sentinel;
  options.sentinelMaster = "mymaster";
  options.sentinelCredentials = [] { return Credentials{}; };
  EXPECT_EQ(refused(), "");
  options.sentinelPassword = "s3cret";
  EXPECT_NE(refused().find("option sentinelCredentials"), std::string::npos);
  EXPECT_EQ(refused().find("s3cret"), std::string::npos);
  options.sentinelPassword.clear();
  options.sentinelUsername = "user";
  EXPECT_NE(refused().find("option sentinelCredentials"), std::string::npos);
  options.sentinelUsername.clear();
  options.nameMapper = [](std::string_view name) { return std::string(name); };
  EXPECT_NE(refused().find("option nameMapper"), std::string::npos);
  options.namePrefix = "has space";
  options.nameMapper = nullptr;
  EXPECT_NE(refused().find("option namePrefix"), std::string::npos);
  EXPECT_THROW(Options::fromUri("redis://host?connect=later"), Error);
}

TEST(ConfigurationDocument, CoversTheWholeStruct) {
  // Structured binding counts the members: a new one that is not in the table breaks the build.
  auto [endpoints,
        username,
        password,
        credentials,
        clientName,
        database,
        namePrefix,
        nameMapper,
        connect,
        connectTimeout,
        commandTimeout,
        watchdogTimeout,
        safetyPoll,
        fairWaiterLease,
        outageTimeout,
        watchdogBatchSize,
        handOverLimit,
        handOverTime,
        log,
        executor,
        loop,
        heartbeatInterval,
        reconnectDelayMin,
        reconnectDelayMax,
        retryDelayMin,
        retryDelayMax,
        callTimeout,
        closeTimeout,
        subscriptionLinger,
        fencingTokenRetention,
        spin,
        maxOperations,
        lostReplyPolicy,
        logLevel,
        onLost,
        onStateChange,
        observer,
        topNames,
        topology,
        tls,
        tlsCaFile,
        tlsCaPath,
        tlsCertFile,
        tlsKeyFile,
        tlsKeyPassword,
        tlsServerName,
        sentinelMaster,
        sentinelUsername,
        sentinelPassword,
        sentinelCredentials,
        sentinelTls,
        sync] = Options{};
  // sync has a row more, for its limit.
  EXPECT_EQ(detail::optionRows().size(), 53U);
  EXPECT_TRUE(endpoints.empty());
}

}  // namespace
}  // namespace options_test
}  // namespace rlock
