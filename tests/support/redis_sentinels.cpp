// SPDX-License-Identifier: Apache-2.0
#include "support/redis_sentinels.hpp"

#include "support/eventually.hpp"
#include "support/raw_redis.hpp"
#include "support/spawn.hpp"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

namespace rlock::test {

namespace {

constexpr std::chrono::milliseconds kEnough{30'000};
constexpr std::chrono::milliseconds kAnswer{1'000};

std::string serverProgram() {
  const char* configured = std::getenv("RLOCK_TEST_REDIS_SERVER");
  return configured != nullptr && *configured != '\0' ? configured : "redis-server";
}

RawRedisOptions at(std::uint16_t port, const std::string& password) {
  RawRedisOptions options;
  options.port = port;
  options.password = password;
  options.timeout = kAnswer;
  return options;
}

/// Forty characters that are the same for the same Sentinel.
std::string idOf(std::size_t index) {
  const char digit = static_cast<char>('a' + index);
  return std::string(40, digit);
}

/// The value beside a name in a flat list.
std::string valueOf(const Value& list, std::string_view name) {
  const std::vector<Value>& words = list.array();
  for (std::size_t i = 0; i + 1 < words.size(); i += 2) {
    if (words[i].string() == name) {
      return words[i + 1].string();
    }
  }
  return {};
}

}  // namespace

RedisSentinel::RedisSentinel(PortReservation port, std::string config, std::string password)
    : port_(std::move(port)),
      password_(std::move(password)),
      directory_("rlock-sentinel"),
      owner_(::getpid()) {
  std::ofstream file(directory_.file("sentinel.conf"));
  file << "port " << port_.port() << "\nbind 127.0.0.1\nprotected-mode no\ndir "
       << directory_.path().string() << '\n'
       << config;
  file.close();
  start();
}

RedisSentinel::~RedisSentinel() {
  if (owner_ == ::getpid()) {
    kill();
  }
}

void RedisSentinel::kill() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    (void)reapProcess(pid_, kEnough);
    pid_ = -1;
  }
}

void RedisSentinel::start() {
  const int output = ::open(
      directory_.file("sentinel.log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (output < 0) {
    throw std::system_error(errno, std::generic_category(), "sentinel.log");
  }
  SpawnOptions spawn;
  spawn.argv = {serverProgram(), directory_.file("sentinel.conf"), "--sentinel"};
  spawn.workingDirectory = directory_.path().string();
  spawn.standardOutput = output;
  spawn.standardError = output;
  try {
    pid_ = spawnProcess(spawn);
  } catch (...) {
    ::close(output);
    throw;
  }
  ::close(output);
  const bool answers = eventually(kEnough, [&] {
    try {
      RawRedis client(at(port(), password_));
      if (!client.ping()) {
        return false;
      }
      // Only Redis 7 can be told to look more often.
      // A replica whose last answer is older than five periods of the ping is not promoted, and
      // during a failover it is asked once per second.
      (void)client.command({"SENTINEL",
                            "DEBUG",
                            "info-period",
                            "200",
                            "ping-period",
                            "400",
                            "ask-period",
                            "100",
                            "publish-period",
                            "1000",
                            "tilt-period",
                            "300",
                            "min-link-reconnect-period",
                            "100"});
      return true;
    } catch (const std::runtime_error&) {
      return false;
    }
  });
  if (!answers) {
    throw std::runtime_error("the Sentinel does not answer:\n" + log());
  }
}

void RedisSentinel::freeze() {
  stopProcess(pid_);
}

void RedisSentinel::thaw() {
  ::kill(pid_, SIGCONT);
}

std::string RedisSentinel::log() const {
  std::ifstream file(directory_.file("sentinel.log"));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

RedisSentinels::RedisSentinels() : RedisSentinels(Options()) {}

RedisSentinels::RedisSentinels(Options options) : options_(std::move(options)) {
  makeNodes();
  makeSentinels();
  awaitSettled();
}

void RedisSentinels::makeNodes() {
  const int count = options_.replicas + 1;
  std::vector<std::uint16_t> ports;
  for (int i = 0; i < count; ++i) {
    // A node announces the address of its proxy, and so has to know it before it starts.
    const PortReservation reservation;
    const std::uint16_t port = reservation.port();
    ports.push_back(port);
    if (options_.proxied) {
      proxies_.push_back(std::make_unique<TcpProxy>(port));
    }
    RedisServerOptions settings;
    settings.port = port;
    settings.password = options_.password;
    settings.persistence = options_.persistence;
    settings.extraArgs = {"--repl-diskless-sync",
                          "yes",
                          "--repl-diskless-sync-delay",
                          "0",
                          "--repl-ping-replica-period",
                          "1"};
    const auto add = [&](std::initializer_list<std::string> words) {
      settings.extraArgs.insert(settings.extraArgs.end(), words);
    };
    if (options_.proxied) {
      add({"--replica-announce-ip", "127.0.0.1"});
      add({"--replica-announce-port", std::to_string(proxies_.back()->port())});
    }
    if (!options_.password.empty()) {
      add({"--masterauth", options_.password});
    }
    if (i > 0) {
      add({"--replicaof", "127.0.0.1", std::to_string(portOf(0))});
    }
    nodes_.push_back(std::make_unique<RedisServer>(settings));
  }
}

void RedisSentinels::makeSentinels() {
  std::vector<PortReservation> ports(static_cast<std::size_t>(options_.sentinels));
  const std::string& name = options_.masterName;
  const auto quorum = options_.sentinels / 2 + 1;
  std::vector<std::uint16_t> numbers;
  for (const PortReservation& port : ports) {
    numbers.push_back(port.port());
  }
  for (std::size_t i = 0; i < ports.size(); ++i) {
    std::string config = "sentinel myid " + idOf(i) + "\nsentinel monitor " + name + " 127.0.0.1 " +
                         std::to_string(portOf(0)) + " " + std::to_string(quorum) +
                         "\nsentinel down-after-milliseconds " + name + " " +
                         std::to_string(options_.downAfter.count()) +
                         "\nsentinel failover-timeout " + name + " " +
                         std::to_string(options_.failoverTimeout.count()) +
                         "\nsentinel parallel-syncs " + name + " 8\n";
    if (!options_.password.empty()) {
      config += "sentinel auth-pass " + name + " " + options_.password + "\n";
    }
    if (!options_.sentinelPassword.empty()) {
      config += "requirepass " + options_.sentinelPassword + "\nsentinel sentinel-pass " +
                options_.sentinelPassword + "\n";
    }
    if (options_.tls) {
      tlsPorts_.push_back(std::make_unique<PortReservation>());
      config += "tls-port " + std::to_string(tlsPorts_.back()->port()) + "\ntls-cert-file " +
                options_.tls->certificate + "\ntls-key-file " + options_.tls->key +
                "\ntls-ca-cert-file " + options_.tls->ca + "\ntls-auth-clients no\n";
    }
    for (std::size_t node = 1; node < nodes_.size(); ++node) {
      config +=
          "sentinel known-replica " + name + " 127.0.0.1 " + std::to_string(portOf(node)) + "\n";
    }
    for (std::size_t other = 0; other < numbers.size(); ++other) {
      if (other != i) {
        config += "sentinel known-sentinel " + name + " 127.0.0.1 " +
                  std::to_string(numbers[other]) + " " + idOf(other) + "\n";
      }
    }
    sentinels_.push_back(std::make_unique<RedisSentinel>(
        std::move(ports[i]), std::move(config), options_.sentinelPassword));
  }
}

std::uint16_t RedisSentinels::portOf(std::size_t index) const {
  return options_.proxied ? proxies_.at(index)->port() : nodes_.at(index)->port();
}

std::string RedisSentinels::address(std::size_t index) const {
  return "127.0.0.1:" + std::to_string(portOf(index));
}

std::string RedisSentinels::uri() const {
  std::string result = "redis+sentinel://";
  if (!options_.password.empty()) {
    result += ":" + options_.password + "@";
  }
  for (std::size_t i = 0; i < sentinels_.size(); ++i) {
    result += (i == 0 ? "127.0.0.1:" : ",127.0.0.1:") + std::to_string(sentinels_[i]->port());
  }
  result += "/" + options_.masterName;
  return options_.sentinelPassword.empty()
             ? result
             : result + "?sentinel-password=" + options_.sentinelPassword;
}

std::string RedisSentinels::tlsUri() const {
  std::string result = "redis+sentinel://";
  for (std::size_t i = 0; i < tlsPorts_.size(); ++i) {
    result += (i == 0 ? "127.0.0.1:" : ",127.0.0.1:") + std::to_string(tlsPorts_[i]->port());
  }
  return result + "/" + options_.masterName + "?sentinel-tls=true&tls-ca-file=" + options_.tls->ca;
}

std::size_t RedisSentinels::failover() {
  const std::size_t before = awaitMaster();
  // A failover that was begun may be given up, and has to be asked for again then; but not while it
  // may be under way, or the master would move twice.
  const auto again = scaled(2 * options_.failoverTimeout);
  std::optional<std::size_t> master;
  std::string answer;
  std::optional<Stopwatch> begun;
  if (!eventually(kEnough, [&] {
        master = masterNow();
        if (master && master != before) {
          return true;
        }
        try {
          if (!begun || begun->elapsedMs() > again) {
            RawRedis client(at(sentinels_.front()->port(), options_.sentinelPassword));
            const Value reply = client.command({"SENTINEL", "FAILOVER", options_.masterName});
            answer = reply.describe();
            if (!reply.isError()) {
              begun.emplace();
            }
          }
        } catch (const std::runtime_error& error) {
          answer = error.what();
        }
        return false;
      })) {
    throw std::runtime_error("no failover: " + answer + "\n" + log());
  }
  return *master;
}

std::optional<std::size_t> RedisSentinels::masterNow() {
  std::map<std::string, std::size_t> votes;
  for (const auto& sentinel : sentinels_) {
    try {
      RawRedis client(at(sentinel->port(), options_.sentinelPassword));
      const Value reply =
          client.command({"SENTINEL", "GET-MASTER-ADDR-BY-NAME", options_.masterName});
      ++votes[reply.array().at(1).string()];
    } catch (const std::runtime_error&) {
      continue;  // it does not run
    }
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (2 * votes[std::to_string(portOf(i))] <= sentinels_.size()) {
      continue;
    }
    try {
      RawRedis client(at(nodes_[i]->port(), options_.password));
      if (client.command({"ROLE"}).array().at(0).string() == "master") {
        return i;
      }
    } catch (const std::runtime_error&) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

std::size_t RedisSentinels::awaitMaster(std::optional<std::size_t> before) {
  std::optional<std::size_t> master;
  if (!eventually(kEnough, [&] {
        master = masterNow();
        return master && master != before;
      })) {
    throw std::runtime_error("no new master:\n" + log());
  }
  return *master;
}

bool RedisSentinels::settled() {
  const auto master = masterNow();
  if (!master) {
    return false;
  }
  const std::string port = std::to_string(portOf(*master));
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (i != *master) {
      RawRedis client(at(nodes_[i]->port(), options_.password));
      if (client.info("master_link_status") != "up" || client.info("master_port") != port) {
        return false;
      }
    }
  }
  for (const auto& sentinel : sentinels_) {
    RawRedis client(at(sentinel->port(), options_.sentinelPassword));
    const Value known = client.command({"SENTINEL", "MASTER", options_.masterName});
    if (valueOf(known, "num-other-sentinels") != std::to_string(sentinels_.size() - 1) ||
        valueOf(known, "num-slaves") != std::to_string(nodes_.size() - 1) ||
        valueOf(known, "flags") != "master" || valueOf(known, "port") != port) {
      return false;
    }
    const Value replicas = client.command({"SENTINEL", "REPLICAS", options_.masterName});
    for (const Value& replica : replicas.array()) {
      if (valueOf(replica, "flags") != "slave" || valueOf(replica, "master-link-status") != "ok") {
        return false;
      }
    }
  }
  return true;
}

void RedisSentinels::awaitSettled() {
  if (!eventually(kEnough, [&] {
        try {
          return settled();
        } catch (const std::runtime_error&) {
          return false;
        }
      })) {
    throw std::runtime_error("the Sentinels do not agree:\n" + log());
  }
}

std::string RedisSentinels::log() const {
  std::string result;
  for (const auto& sentinel : sentinels_) {
    result += "Sentinel on port " + std::to_string(sentinel->port()) + ":\n" + sentinel->log();
  }
  return result;
}

}  // namespace rlock::test
