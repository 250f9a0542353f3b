// SPDX-License-Identifier: Apache-2.0
#include "blocking_stream.hpp"

#include <fmt/format.h>
#include <hiredis/hiredis.h>

#include <arpa/inet.h>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdexcept>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>
#if RLOCK_BENCH_TLS
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#endif

namespace rlock::bench {

namespace {

void check(bool right, const char* what) {
  if (!right) {
    throw std::runtime_error(fmt::format("a blocking stream: {}", what));
  }
}

struct ReaderDeleter {
  void operator()(redisReader* reader) const noexcept { ::redisReaderFree(reader); }
};

#if RLOCK_BENCH_TLS
struct TlsDeleter {
  void operator()(SSL* tls) const noexcept { ::SSL_free(tls); }
  void operator()(SSL_CTX* context) const noexcept { ::SSL_CTX_free(context); }
};
#endif

}  // namespace

struct BlockingStream::Impl {
  explicit Impl(const Endpoint& endpoint) : descriptor(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(endpoint.port);
    check(::inet_pton(AF_INET, endpoint.host.c_str(), &address.sin_addr) == 1,
          "only an IPv4 address");
    const int on = 1;
    check(::connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
              ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0,
          "cannot connect");
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { ::close(descriptor); }

  void encrypt(const Options& options);
  void write(const char* data, std::size_t size);
  std::size_t read(char* data, std::size_t size);

  const int descriptor;
  std::unique_ptr<redisReader, ReaderDeleter> reader{::redisReaderCreate()};
#if RLOCK_BENCH_TLS
  std::unique_ptr<SSL_CTX, TlsDeleter> context;
  std::unique_ptr<SSL, TlsDeleter> tls;
#endif
};

void BlockingStream::Impl::encrypt([[maybe_unused]] const Options& options) {
#if RLOCK_BENCH_TLS
  context.reset(::SSL_CTX_new(::TLS_client_method()));
  check(context != nullptr, "no TLS");
  ::SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  check(::SSL_CTX_load_verify_locations(context.get(), options.tlsCaFile.c_str(), nullptr) == 1,
        "no certificate authority");
  tls.reset(::SSL_new(context.get()));
  check(tls != nullptr, "no TLS");
  const std::string& host = options.endpoints.front().host;
  check(::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(tls.get()), host.c_str()) == 1 &&
            ::SSL_set_fd(tls.get(), descriptor) == 1 && ::SSL_connect(tls.get()) == 1,
        "no handshake");
#else
  check(false, "this build has no TLS");
#endif
}

void BlockingStream::Impl::write(const char* data, std::size_t size) {
#if RLOCK_BENCH_TLS
  if (tls) {
    std::size_t written = 0;
    check(::SSL_write_ex(tls.get(), data, size, &written) == 1 && written == size, "write");
    return;
  }
#endif
  check(::send(descriptor, data, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size), "write");
}

std::size_t BlockingStream::Impl::read(char* data, std::size_t size) {
#if RLOCK_BENCH_TLS
  if (tls) {
    std::size_t received = 0;
    check(::SSL_read_ex(tls.get(), data, size, &received) == 1, "read");
    return received;
  }
#endif
  const ssize_t received = ::recv(descriptor, data, size, 0);
  check(received > 0, "read");
  return static_cast<std::size_t>(received);
}

BlockingStream::BlockingStream(const Options& options)
    : impl_(std::make_unique<Impl>(options.endpoints.front())) {
  if (options.tls) {
    impl_->encrypt(options);
  }
}

BlockingStream::~BlockingStream() = default;

ReplyPtr BlockingStream::command(const std::vector<std::string_view>& words) {
  std::vector<const char*> texts;
  std::vector<std::size_t> sizes;
  for (const std::string_view word : words) {
    texts.push_back(word.data());
    sizes.push_back(word.size());
  }
  char* text = nullptr;
  const auto size =
      ::redisFormatCommandArgv(&text, static_cast<int>(words.size()), texts.data(), sizes.data());
  check(size > 0, "format");
  const std::unique_ptr<char, decltype(&::redisFreeCommand)> owned(text, ::redisFreeCommand);
  impl_->write(text, static_cast<std::size_t>(size));
  std::array<char, 16 * 1024> buffer{};
  for (;;) {
    void* reply = nullptr;
    check(::redisReaderGetReply(impl_->reader.get(), &reply) == REDIS_OK, "reply");
    if (reply != nullptr) {
      return ReplyPtr(static_cast<redisReply*>(reply));
    }
    const std::size_t received = impl_->read(buffer.data(), buffer.size());
    check(::redisReaderFeed(impl_->reader.get(), buffer.data(), received) == REDIS_OK, "reply");
  }
}

BlockingStreamLock::BlockingStreamLock(const Options& options,
                                       const Scripts& scripts,
                                       const std::string& name)
    : scripts_(scripts), name_(name), channel_(channelOf(name)), stream_(options) {}

void BlockingStreamLock::lock() {
  check(isAcquired(*stream_.command(acquireWords(scripts_, name_))), "not acquired");
}

void BlockingStreamLock::unlock() {
  check(isReleased(*stream_.command(releaseWords(scripts_, name_, channel_))), "not released");
}

}  // namespace rlock::bench
