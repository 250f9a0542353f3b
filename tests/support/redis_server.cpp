// SPDX-License-Identifier: Apache-2.0
#include "support/redis_server.hpp"

#include "support/eventually.hpp"
#include "support/raw_redis.hpp"
#include "support/spawn.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

namespace rlock::test {

namespace {

constexpr auto kStopTimeout = std::chrono::milliseconds(5'000);
constexpr int kPortAttempts = 10;

std::string program() {
  const char* configured = std::getenv("RLOCK_TEST_REDIS_SERVER");
  return configured != nullptr && *configured != '\0' ? configured : "redis-server";
}

std::string versionText() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return {};
  }
  std::string text;
  try {
    SpawnOptions options;
    options.argv = {program(), "--version"};
    options.standardOutput = ends[1];
    const pid_t pid = spawnProcess(options);
    ::close(std::exchange(ends[1], -1));
    char chunk[256];
    ssize_t got = 0;
    while ((got = ::read(ends[0], chunk, sizeof chunk)) > 0) {
      text.append(chunk, static_cast<std::size_t>(got));
    }
    (void)reapProcess(pid, kStopTimeout);
  } catch (const std::system_error&) {
    text.clear();
  }
  ::close(ends[0]);
  if (ends[1] >= 0) {
    ::close(ends[1]);
  }
  return text;
}

std::string percentEncoded(std::string_view text) {
  std::string encoded;
  for (const char character : text) {
    const bool plain = (character >= 'a' && character <= 'z') ||
                       (character >= 'A' && character <= 'Z') ||
                       (character >= '0' && character <= '9') || character == '-' ||
                       character == '_' || character == '.' || character == '~';
    if (plain) {
      encoded += character;
    } else {
      char hex[4];
      std::snprintf(hex, sizeof hex, "%%%02X", static_cast<unsigned char>(character));
      encoded += hex;
    }
  }
  return encoded;
}

std::string inQuotes(std::string_view text) {
  std::string result = "\"";
  for (const char character : text) {
    if (character == '"' || character == '\\') {
      result += '\\';
    }
    result += character;
  }
  return result + "\"";
}

}  // namespace

bool RedisServer::available() {
  return version().major > 0;
}

RedisServerVersion RedisServer::version() {
  static const RedisServerVersion parsed = [] {
    RedisServerVersion version;
    const std::string text = versionText();
    const std::size_t at = text.find("v=");
    if (at != std::string::npos &&
        std::sscanf(
            text.c_str() + at, "v=%d.%d.%d", &version.major, &version.minor, &version.patch) < 1) {
      version = {};
    }
    return version;
  }();
  return parsed;
}

RedisAvailability redisAvailability() {
  if (RedisServer::available()) {
    return RedisAvailability::run;
  }
  const char* required = std::getenv("RLOCK_TEST_REQUIRE_REDIS");
  return required != nullptr && std::string_view(required) == "1" ? RedisAvailability::fail
                                                                  : RedisAvailability::skip;
}

RedisServer::RedisServer() : RedisServer(Options()) {}

RedisServer::RedisServer(Options options)
    : options_(std::move(options)), owner_(::getpid()), directory_("rlock-redis") {
  if (!available()) {
    throw std::runtime_error("cannot run " + program());
  }
  if (options_.unixSocket || options_.unixSocketOnly) {
    socketPath_ = directory_.file("redis.sock");
  }
  const std::lock_guard guard(mutex_);
  if (!options_.unixSocketOnly) {
    if (options_.port != 0) {
      reservation_.emplace(options_.port);
    } else {
      reservation_.emplace();
    }
  }
  startLocked();
}

RedisServer::~RedisServer() {
  if (owner_ != ::getpid()) {
    return;
  }
  const std::lock_guard guard(mutex_);
  // SIGKILL also ends a stopped process, and there is nothing to save.
  endLocked(SIGKILL);
}

std::uint16_t RedisServer::port() const {
  const std::lock_guard guard(mutex_);
  return reservation_ ? reservation_->port() : std::uint16_t{0};
}

std::string RedisServer::uri() const {
  if (options_.unixSocketOnly) {
    return unixUri();
  }
  const std::string user =
      options_.password.empty() ? "" : ":" + percentEncoded(options_.password) + "@";
  return "redis://" + user + "127.0.0.1:" + std::to_string(port());
}

std::string RedisServer::unixUri() const {
  const std::string user =
      options_.password.empty() ? "" : ":" + percentEncoded(options_.password) + "@";
  return "unix://" + user + socketPath_;
}

pid_t RedisServer::pid() const {
  const std::lock_guard guard(mutex_);
  return pid_;
}

bool RedisServer::running() const {
  const std::lock_guard guard(mutex_);
  return runningLocked();
}

bool RedisServer::runningLocked() const {
  if (alive_ && reapProcess(pid_, std::chrono::milliseconds(0))) {
    alive_ = false;
  }
  return alive_;
}

void RedisServer::kill() {
  const std::lock_guard guard(mutex_);
  endLocked(SIGKILL);
}

void RedisServer::stop() {
  const std::lock_guard guard(mutex_);
  endLocked(SIGTERM);
}

void RedisServer::start() {
  const std::lock_guard guard(mutex_);
  if (runningLocked()) {
    throw std::runtime_error("redis-server runs already");
  }
  startLocked();
}

void RedisServer::restart() {
  const std::lock_guard guard(mutex_);
  endLocked(SIGTERM);
  startLocked();
}

void RedisServer::freeze() {
  const std::lock_guard guard(mutex_);
  if (runningLocked()) {
    stopProcess(pid_);
  }
}

void RedisServer::thaw() {
  const std::lock_guard guard(mutex_);
  if (runningLocked()) {
    ::kill(pid_, SIGCONT);
  }
}

std::string RedisServer::log() const {
  std::ifstream file(directory_.file("redis.log"));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void RedisServer::endLocked(int signal) {
  if (!runningLocked()) {
    return;
  }
  ::kill(pid_, signal);
  ::kill(pid_, SIGCONT);
  if (!reapProcess(pid_, scaled(kStopTimeout))) {
    ::kill(pid_, SIGKILL);
    (void)reapProcess(pid_, scaled(kStopTimeout));
  }
  alive_ = false;
}

void RedisServer::startLocked() {
  const bool mayMove = reservation_ && options_.port == 0 && pid_ < 0;
  for (int attempt = 0; attempt < kPortAttempts; ++attempt) {
    if (launch()) {
      return;
    }
    endLocked(SIGKILL);
    if (!mayMove || log().find("ddress already in use") == std::string::npos) {
      break;
    }
    reservation_.emplace();
  }
  throw std::runtime_error(program() + " did not start:\n" + log());
}

bool RedisServer::launch() {
  writeConfig();
  if (!socketPath_.empty()) {
    ::unlink(socketPath_.c_str());
  }
  const int output =
      ::open(directory_.file("redis.log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (output < 0) {
    throw std::system_error(errno, std::generic_category(), "redis.log");
  }
  SpawnOptions spawn;
  spawn.argv = {program(), directory_.file("redis.conf")};
  spawn.argv.insert(spawn.argv.end(), options_.extraArgs.begin(), options_.extraArgs.end());
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
  alive_ = true;
  return waitUntilReady();
}

bool RedisServer::waitUntilReady() {
  RawRedisOptions target;
  target.port = reservation_ ? reservation_->port() : std::uint16_t{0};
  target.unixPath = options_.unixSocketOnly ? socketPath_ : "";
  const Deadline deadline(options_.startTimeout);
  while (runningLocked() && !deadline.expired()) {
    try {
      target.timeout = std::max(deadline.remaining(), std::chrono::milliseconds(1));
      RawRedis client(target);
      const Value reply = client.command({"PING"});
      // Any other answer, NOAUTH say, comes from a server that is ready.
      if (!reply.isError() || reply.error().rfind("LOADING", 0) != 0) {
        return runningLocked();
      }
    } catch (const std::runtime_error&) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

void RedisServer::writeConfig() const {
  std::ofstream file(directory_.file("redis.conf"), std::ios::trunc);
  file << "daemonize no\nbind 127.0.0.1\nport " << (reservation_ ? reservation_->port() : 0) << '\n'
       << "dir " << inQuotes(directory_.path().string()) << '\n'
       << "save \"\"\n"
       << "appendonly " << (options_.persistence ? "yes" : "no") << '\n'
       << "appendfsync always\n";
  if (!socketPath_.empty()) {
    file << "unixsocket " << inQuotes(socketPath_) << "\nunixsocketperm 700\n";
  }
  if (!options_.password.empty()) {
    file << "requirepass " << inQuotes(options_.password) << '\n';
  }
  for (const std::string& user : options_.aclUsers) {
    file << "user " << user << '\n';
  }
  if (version().major >= 7) {
    // A shutdown must not wait for replicas that a test has killed.
    file << "enable-debug-command local\nshutdown-timeout 0\n";
  }
  file.close();
  if (!file) {
    throw std::runtime_error("cannot write redis.conf");
  }
}

}  // namespace rlock::test
