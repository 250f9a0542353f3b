// SPDX-License-Identifier: Apache-2.0
#include "server.hpp"

#include <fmt/format.h>
#include <hiredis/hiredis.h>

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace rlock::bench {

namespace {

std::uint16_t freePort() {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const bool bound =
      ::bind(descriptor, generic, size) == 0 && ::getsockname(descriptor, generic, &size) == 0;
  ::close(descriptor);
  if (!bound) {
    throw std::system_error(errno, std::generic_category(), "no free port");
  }
  return ntohs(address.sin_port);
}

}  // namespace

OwnServer::OwnServer(const std::string& program) {
  makeDirectory();
  makeCertificate();
  startSomewhere(program);
}

OwnServer::OwnServer(const std::string& program, std::vector<std::string> settings, ServerKind kind)
    : settings_(std::move(settings)), kind_(kind) {
  makeDirectory();
  startSomewhere(program);
}

void OwnServer::makeDirectory() {
  std::string pattern = std::filesystem::temp_directory_path() / "rlock-bench-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw std::system_error(errno, std::generic_category(), pattern);
  }
  directory_ = pattern;
}

void OwnServer::startSomewhere(const std::string& program) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    // A server that knows no TLS does not start with it.
    hasCertificate_ = hasCertificate_ && attempt < 2;
    if (start(program, freePort(), freePort())) {
      return;
    }
  }
  end();
  throw std::runtime_error(program + " did not start");
}

OwnServer::~OwnServer() {
  end();
}

std::string OwnServer::uri() const {
  return fmt::format("redis://127.0.0.1:{}", port_);
}

std::string OwnServer::tlsUri() const {
  return hasCertificate_ ? fmt::format("rediss://127.0.0.1:{}?tls-ca-file={}",
                                       secondPort_,
                                       (directory_ / "cert.pem").string())
                         : "";
}

void OwnServer::makeCertificate() {
#if RLOCK_BENCH_TLS
  // The directory's name is made by this program, and needs no quotes.
  const std::string command = fmt::format(
      "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=rlock_bench "
      "-addext subjectAltName=IP:127.0.0.1 -keyout {0}/key.pem -out {0}/cert.pem "
      ">/dev/null 2>&1",
      directory_.string());
  hasCertificate_ = std::system(command.c_str()) == 0;
#endif
}

bool OwnServer::start(const std::string& program, std::uint16_t port, std::uint16_t secondPort) {
  std::vector<std::string> words{program,
                                 "--port",
                                 std::to_string(port),
                                 "--bind",
                                 "127.0.0.1",
                                 "--dir",
                                 directory_,
                                 "--save",
                                 "",
                                 "--appendonly",
                                 "no",
                                 "--daemonize",
                                 "no"};
  if (hasCertificate_) {
    for (const std::string& word : {std::string("--tls-port"),
                                    std::to_string(secondPort),
                                    std::string("--tls-cert-file"),
                                    (directory_ / "cert.pem").string(),
                                    std::string("--tls-key-file"),
                                    (directory_ / "key.pem").string(),
                                    std::string("--tls-ca-cert-file"),
                                    (directory_ / "cert.pem").string(),
                                    std::string("--tls-auth-clients"),
                                    std::string("no")}) {
      words.push_back(word);
    }
  }
  if (kind_ == ServerKind::node) {
    for (const std::string& word : {std::string("--cluster-enabled"),
                                    std::string("yes"),
                                    std::string("--cluster-port"),
                                    std::to_string(secondPort)}) {
      words.push_back(word);
    }
  }
  words.insert(words.end(), settings_.begin(), settings_.end());
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);

  const std::string log = directory_ / "log";
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::setsid();
    const int output = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(output, STDOUT_FILENO);
    ::dup2(output, STDERR_FILENO);
    if (::getppid() == parent) {
      ::execvp(arguments[0], arguments.data());
    }
    ::_exit(127);
  }
  port_ = port;
  secondPort_ = secondPort;
  for (int i = 0; i < 200; ++i) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return false;
    }
    try {
      Connection connection(Options::fromUri(uri()));
      if (connection.info("server", "process_id") == std::to_string(pid_)) {
        return true;
      }
    } catch (const std::runtime_error&) {
      // Not yet.
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  endProcess();
  return false;
}

void OwnServer::endProcess() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
}

void OwnServer::end() {
  endProcess();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void ReplyDeleter::operator()(redisReply* reply) const noexcept {
  ::freeReplyObject(reply);
}

void Connection::Deleter::operator()(redisContext* context) const noexcept {
  ::redisFree(context);
}

Connection::Connection(const Options& options) {
  const Endpoint& endpoint = options.endpoints.front();
  const timeval limit{5, 0};
  context_.reset(endpoint.path.empty()
                     ? ::redisConnectWithTimeout(endpoint.host.c_str(), endpoint.port, limit)
                     : ::redisConnectUnixWithTimeout(endpoint.path.c_str(), limit));
  if (!context_ || context_->err != 0) {
    throw std::runtime_error(fmt::format("cannot connect to {}: {}",
                                         toString(endpoint),
                                         context_ ? context_->errstr : "out of memory"));
  }
  if (!options.password.empty()) {
    std::vector<std::string_view> words{"AUTH"};
    if (!options.username.empty()) {
      words.push_back(options.username);
    }
    words.push_back(options.password);
    command(words);
  }
  if (options.database != 0) {
    command({"SELECT", std::to_string(options.database)});
  }
}

ReplyPtr Connection::command(const std::vector<std::string_view>& words) {
  append(words);
  for (; owed_ > 0; --owed_) {
    next();
  }
  return next();
}

void Connection::sendOnly(const std::vector<std::string_view>& words) {
  append(words);
  ++owed_;
  int done = 0;
  while (done == 0) {
    if (::redisBufferWrite(context_.get(), &done) != REDIS_OK) {
      throw std::runtime_error(fmt::format("hiredis: {}", context_->errstr));
    }
  }
}

ReplyPtr Connection::receive() {
  return next();
}

std::string Connection::loadScript(std::string_view text) {
  const ReplyPtr reply = command({"SCRIPT", "LOAD", text});
  return {reply->str, static_cast<std::size_t>(reply->len)};
}

std::string Connection::info(std::string_view section, std::string_view field) {
  const ReplyPtr reply = command({"INFO", section});
  const std::string_view text(reply->str, static_cast<std::size_t>(reply->len));
  const std::string key = fmt::format("\n{}:", field);
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) {
    return {};
  }
  const std::size_t begin = at + key.size();
  return std::string(text.substr(begin, text.find('\r', begin) - begin));
}

int Connection::descriptor() const {
  return context_->fd;
}

void Connection::append(const std::vector<std::string_view>& words) {
  constexpr std::size_t kMost = 16;
  std::array<const char*, kMost> texts{};
  std::array<std::size_t, kMost> sizes{};
  if (words.size() > kMost) {
    throw std::invalid_argument("too many words in a command");
  }
  for (std::size_t i = 0; i < words.size(); ++i) {
    texts[i] = words[i].data();
    sizes[i] = words[i].size();
  }
  if (::redisAppendCommandArgv(
          context_.get(), static_cast<int>(words.size()), texts.data(), sizes.data()) != REDIS_OK) {
    throw std::runtime_error(fmt::format("hiredis: {}", context_->errstr));
  }
}

ReplyPtr Connection::next() {
  void* raw = nullptr;
  if (::redisGetReply(context_.get(), &raw) != REDIS_OK) {
    throw std::runtime_error(fmt::format("hiredis: {}", context_->errstr));
  }
  ReplyPtr reply(static_cast<redisReply*>(raw));
  if (reply->type == REDIS_REPLY_ERROR) {
    throw std::runtime_error(fmt::format("the server says: {}", reply->str));
  }
  return reply;
}

}  // namespace rlock::bench
