// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/socket.hpp"
#include "net/stream.hpp"
#include "net/tls_context.hpp"
#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/atomic.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

namespace rlock::detail::net {

/// TLS over a connected socket.
///
/// OpenSSL's state is used by the reader and the writer, one at a time; it never touches the
/// socket, and the mutex that guards it is never held while a call to the kernel could block. The
/// reader hands what has come to it and takes out plain bytes; the writer hands plain bytes to it
/// and sends what comes out. OpenSSL's own messages that reading causes, such as the answer to a
/// key update, are sent by the next write, for only one thread may put bytes into the socket.
///
/// write() says that bytes are written when the kernel has the whole record that they are in. Until
/// then the peer can make nothing of them.
///
/// **Thread safety:** as Stream.
class TlsStream final : public Stream {
 public:
  /// @param endpoint  for messages and to find the session of an earlier connection
  TlsStream(UniqueFd fd, std::shared_ptr<TlsContext> context, const Endpoint& endpoint);
  /// In a child process OpenSSL's state is left as it is.
  ~TlsStream() override;

  Opening open() override;
  ssize_t read(char* data, std::size_t size, bool mayBlock) noexcept override;
  ssize_t write(const char* data, std::size_t size) noexcept override;
  /// Says goodbye to the peer if the socket has room for it, and nothing else is under way.
  void shutdown() noexcept override;
  void abort() noexcept override;
  [[nodiscard]] int descriptor() const noexcept override { return fd_.get(); }
  [[nodiscard]] bool hasBufferedInput() const noexcept override {
    return buffered_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool writeAwaitsInput() const noexcept override {
    return writeAwaitsInput_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool packsWrites() const noexcept override { return true; }
  [[nodiscard]] const StreamFailure* failure() const noexcept override {
    return failed_.load(std::memory_order_acquire) ? &failure_ : nullptr;
  }

  // OpenSSL calls these, inside a call of a stream.
  static int onVerify(int accepted, X509_STORE_CTX* verification);
  static int onNewSession(SSL* ssl, SSL_SESSION* session);

 private:
  // The handshake.
  bool proceed() noexcept RLOCK_EXCLUDES(mutex_);
  bool receiveHandshake() RLOCK_EXCLUDES(mutex_);
  void tellOpened() RLOCK_EXCLUDES(mutex_);

  // As the reader.
  bool feed(std::size_t size) noexcept RLOCK_REQUIRES(mutex_);
  ssize_t decrypt(char* data, std::size_t size) noexcept RLOCK_REQUIRES(mutex_);

  // As the writer.
  bool encrypt(const char* data, std::size_t size) noexcept RLOCK_EXCLUDES(mutex_);
  bool flush() noexcept RLOCK_EXCLUDES(mutex_);
  bool prepare() noexcept RLOCK_REQUIRES(mutex_);

  void fail() noexcept RLOCK_REQUIRES(mutex_);

  const UniqueFd fd_;
  const std::shared_ptr<TlsContext> context_;
  const std::string node_;    // where it leads, as configured
  const std::string name_;    // what the server has to prove
  const std::string server_;  // by which its sessions are found
  const std::uint32_t forkGeneration_;

  AnnotatedMutex mutex_;
  TlsHandle<SSL> ssl_ RLOCK_PT_GUARDED_BY(mutex_);  // always the same
  // Ciphertext that is in the writer's hands: nothing may be sent before all of it is.
  bool sending_ RLOCK_GUARDED_BY(mutex_) = false;
  bool ended_ RLOCK_GUARDED_BY(mutex_) = false;   // nothing is to be said any more
  std::string refusal_ RLOCK_GUARDED_BY(mutex_);  // of the server's certificate

  // Written under mutex_: OpenSSL has half of a message of its own.
  Atomic<bool> writeAwaitsInput_{false};
  // Written once, under mutex_, before failed_.
  StreamFailure failure_;
  Atomic<bool> failed_{false};

  // Of the reader.
  std::vector<char> received_;
  Atomic<bool> buffered_{false};  // OpenSSL may have plain bytes
  bool heardNothing_ = true;

  // Of the writer.
  std::vector<char> prepared_;  // ciphertext
  std::size_t preparedSize_ = 0;
  std::size_t sent_ = 0;
  std::size_t taken_ = 0;  // the plain bytes of the record under way
};

}  // namespace rlock::detail::net
