// SPDX-License-Identifier: Apache-2.0
#include "net/tls_stream.hpp"

#include "net/tls.hpp"
#include "net/tls_errors.hpp"
#include <rlock/detail/base/fork.hpp>
#include <rlock/error.hpp>

#include <fmt/format.h>
#include <openssl/err.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <exception>
#include <new>
#include <sys/socket.h>
#include <system_error>
#include <utility>

namespace rlock::detail::net {

namespace {

// The plain bytes of one TLS record, and room for them when they are encrypted (512 bytes are more
// than the overhead).
constexpr std::size_t kRecordSize = std::size_t{16} << 10;
constexpr std::size_t kPreparedSize = kRecordSize + 512;
constexpr std::size_t kReceivedSize = std::size_t{32} << 10;

/// Whether this can be the first byte of a TLS record: its content type, 20 to 23.
bool beginsLikeTls(char first) noexcept {
  return first >= '\x14' && first <= '\x17';
}

int sizeForOpenssl(std::size_t size) noexcept {
  return static_cast<int>(std::min<std::size_t>(size, INT_MAX));
}

}  // namespace

TlsStream::TlsStream(UniqueFd fd, std::shared_ptr<TlsContext> context, const Endpoint& endpoint)
    : fd_(std::move(fd)),
      context_(std::move(context)),
      node_(toString(endpoint)),
      name_(context_->nameOf(endpoint)),
      server_(name_ + ' ' + node_),
      forkGeneration_(forkGeneration()),
      ssl_(context_->connection(name_)),
      received_(kReceivedSize),
      prepared_(kPreparedSize) {
  const MutexLock lock(mutex_);
  // The functions that OpenSSL calls rely on it.
  if (SSL_set_app_data(ssl_.get(), this) != 1) {
    throw std::bad_alloc();
  }
  if (const auto session = context_->sessions().find(server_)) {
    SSL_set_session(ssl_.get(), session.get());
  }
}

TlsStream::~TlsStream() {
  if (forkGeneration() != forkGeneration_) {
    // In a forked child. Another thread of the parent may have been inside OpenSSL, and shutting
    // down would end the parent's session.
    static_cast<void>(ssl_.release());
    return;
  }
  shutdown();
  const MutexLock lock(mutex_);
  // Otherwise OpenSSL would take the session for one that must not be resumed.
  SSL_set_shutdown(ssl_.get(), SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
}

Stream::Opening TlsStream::open() {
  for (;;) {
    if (!flush() && errno == EAGAIN) {
      return Opening::needsRoom;
    }
    const bool done = proceed();
    // After a failure this sends the alert by which the server learns of it. Where the server has
    // closed, what it said before that is worth more than the error here.
    const bool full = !flush() && errno == EAGAIN;
    if (const StreamFailure* const why = failure()) {
      context_->sessions().forget(server_);
      throw Error(why->errc, why->text);
    }
    if (full) {
      return Opening::needsRoom;
    }
    if (done) {
      // The bytes that came last may go beyond the server's part of the handshake.
      buffered_.store(true, std::memory_order_relaxed);
      tellOpened();
      return Opening::done;
    }
    if (!receiveHandshake()) {
      return Opening::needsInput;
    }
  }
}

/// Goes on with the handshake as far as what has come allows. Returns whether it is complete.
bool TlsStream::proceed() noexcept {
  const MutexLock lock(mutex_);
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  if (result != 1 && SSL_get_error(ssl_.get(), result) != SSL_ERROR_WANT_READ) {
    fail();
  }
  return result == 1;
}

/// Returns false when nothing has come.
bool TlsStream::receiveHandshake() {
  const ssize_t count = receiveSome(fd_.get(), received_.data(), received_.size(), false);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    return false;
  }
  if (count < 0 && errno != ECONNRESET) {
    throw Error(Errc::connectionFailed, std::generic_category().message(errno));
  }
  if (count <= 0) {
    throw Error(Errc::connectionFailed,
                "the server closed the connection in the TLS handshake, as a port may do that "
                "speaks no TLS; if it is one, write redis:// before its address");
  }
  if (std::exchange(heardNothing_, false) && !beginsLikeTls(received_.front())) {
    throw Error(Errc::protocolError,
                "this port speaks no TLS; write redis:// before its address, or the address of a "
                "port that does");
  }
  const MutexLock lock(mutex_);
  if (!feed(static_cast<std::size_t>(count))) {
    throw Error(Errc::connectionFailed, std::generic_category().message(errno));
  }
  return true;
}

void TlsStream::tellOpened() {
  if (!context_->logs(LogLevel::debug)) {
    return;
  }
  std::string text;
  {
    const MutexLock lock(mutex_);
    text = fmt::format("{}: {}, {}, {}",
                       node_,
                       SSL_get_version(ssl_.get()),
                       SSL_get_cipher_name(ssl_.get()),
                       SSL_session_reused(ssl_.get()) == 1 ? "resumed session" : "new session");
  }
  context_->log(LogLevel::debug, text);
}

ssize_t TlsStream::read(char* data, std::size_t size, bool mayBlock) noexcept {
  if (hasBufferedInput()) {
    const MutexLock lock(mutex_);
    const ssize_t count = decrypt(data, size);
    if (count >= 0 || errno != EAGAIN) {
      return count;
    }
  }
  const ssize_t count = receiveSome(fd_.get(), received_.data(), received_.size(), mayBlock);
  if (count <= 0) {
    return count;
  }
  const MutexLock lock(mutex_);
  return feed(static_cast<std::size_t>(count)) ? decrypt(data, size) : -1;
}

/// Hands what the reader has received to OpenSSL. False with errno.
bool TlsStream::feed(std::size_t size) noexcept {
  if (BIO_write(SSL_get_rbio(ssl_.get()), received_.data(), sizeForOpenssl(size)) ==
      sizeForOpenssl(size)) {
    return true;
  }
  errno = ENOMEM;
  return false;
}

/// As read(), out of what OpenSSL has.
ssize_t TlsStream::decrypt(char* data, std::size_t size) noexcept {
  std::size_t total = 0;
  ssize_t end = -1;
  int error = EPROTO;
  while (total < size) {
    if (failed_.load(std::memory_order_relaxed)) {
      break;
    }
    std::size_t count = 0;
    ERR_clear_error();
    if (SSL_read_ex(ssl_.get(), data + total, size - total, &count) == 1) {
      total += count;
      continue;
    }
    const int why = SSL_get_error(ssl_.get(), 0);
    if (why == SSL_ERROR_WANT_READ) {
      buffered_.store(false, std::memory_order_relaxed);
      error = EAGAIN;
    } else if (why == SSL_ERROR_ZERO_RETURN) {
      end = 0;
    } else {
      fail();
    }
    break;
  }
  if (SSL_in_init(ssl_.get()) == 0 || end == 0 || failed_.load(std::memory_order_relaxed)) {
    writeAwaitsInput_.store(false, std::memory_order_relaxed);
  }
  if (total > 0) {
    // These bytes come first; the next call finds the end or the failure again.
    if (error != EAGAIN) {
      buffered_.store(true, std::memory_order_relaxed);
    }
    return static_cast<ssize_t>(total);
  }
  errno = error;
  return end;
}

ssize_t TlsStream::write(const char* data, std::size_t size) noexcept {
  if ((taken_ == 0 && !encrypt(data, size)) || !flush()) {
    return -1;
  }
  return static_cast<ssize_t>(std::exchange(taken_, 0));
}

/// Makes a record of the first of these bytes. False with errno.
bool TlsStream::encrypt(const char* data, std::size_t size) noexcept {
  const MutexLock lock(mutex_);
  std::size_t count = 0;
  ERR_clear_error();
  const bool written = !failed_.load(std::memory_order_relaxed) &&
                       SSL_write_ex(ssl_.get(), data, std::min(size, kRecordSize), &count) == 1;
  if (!written && !failed_.load(std::memory_order_relaxed) &&
      SSL_get_error(ssl_.get(), 0) == SSL_ERROR_WANT_READ) {
    // Half of a message that belongs to no handshake has come, such as a session ticket in several
    // records. OpenSSL wants the rest first, which the reader brings.
    writeAwaitsInput_.store(true, std::memory_order_relaxed);
    errno = EAGAIN;
    return false;
  }
  if (!written) {
    fail();
    errno = EPROTO;
    return false;
  }
  taken_ = count;
  prepare();
  return true;
}

/// Sends all that OpenSSL has to say. False with errno: what is left goes first next time.
bool TlsStream::flush() noexcept {
  for (;;) {
    while (sent_ < preparedSize_) {
      const ssize_t count = sendSome(fd_.get(), prepared_.data() + sent_, preparedSize_ - sent_);
      if (count < 0) {
        return false;
      }
      sent_ += static_cast<std::size_t>(count);
    }
    const MutexLock lock(mutex_);
    if (!prepare()) {
      return true;
    }
  }
}

/// Takes out what is to be sent next, when all before it has been. False: there is nothing.
bool TlsStream::prepare() noexcept {
  const int count =
      BIO_read(SSL_get_wbio(ssl_.get()), prepared_.data(), sizeForOpenssl(prepared_.size()));
  sent_ = 0;
  preparedSize_ = count > 0 ? static_cast<std::size_t>(count) : 0;
  sending_ = preparedSize_ > 0;
  return sending_;
}

void TlsStream::fail() noexcept {
  ended_ = true;
  if (failed_.load(std::memory_order_relaxed)) {
    return;
  }
  try {
    if (SSL_get_verify_result(ssl_.get()) != X509_V_OK) {
      failure_ = {Errc::authenticationFailed,
                  refusal_.empty() ? "the server's certificate is not accepted" : refusal_};
    } else {
      failure_ = explainTlsFailure(context_->hasCertificate());
    }
  } catch (const std::exception&) {
    // Out of memory: the failure is reported without its text.
    failure_.errc = Errc::connectionFailed;
  }
  ERR_clear_error();
  failed_.store(true, std::memory_order_release);
}

void TlsStream::shutdown() noexcept {
  {
    const MutexLock lock(mutex_);
    if (!std::exchange(ended_, true) && !sending_ && SSL_is_init_finished(ssl_.get()) == 1) {
      ERR_clear_error();
      SSL_shutdown(ssl_.get());
      std::array<char, 256> goodbye;
      const int count = BIO_read(SSL_get_wbio(ssl_.get()), goodbye.data(), goodbye.size());
      if (count > 0) {
        static_cast<void>(sendSome(fd_.get(), goodbye.data(), static_cast<std::size_t>(count)));
      }
      ERR_clear_error();
    }
  }
  static_cast<void>(::shutdown(fd_.get(), SHUT_RDWR));
}

void TlsStream::abort() noexcept {
  {
    const MutexLock lock(mutex_);
    ended_ = true;
  }
  abortSocket(fd_.get());
}

// Not analysed: OpenSSL calls it inside a call that a stream makes under its mutex.
int TlsStream::onVerify(int accepted,
                        X509_STORE_CTX* verification) RLOCK_NO_THREAD_SAFETY_ANALYSIS {
  if (accepted == 1) {
    return 1;
  }
  const auto* const ssl = static_cast<const SSL*>(
      X509_STORE_CTX_get_ex_data(verification, SSL_get_ex_data_X509_STORE_CTX_idx()));
  auto* const stream = static_cast<TlsStream*>(SSL_get_app_data(ssl));
  try {
    stream->refusal_ = describeRefusal(X509_STORE_CTX_get_error(verification),
                                       X509_STORE_CTX_get_current_cert(verification),
                                       '"' + stream->name_ + '"',
                                       stream->context_->trusted());
  } catch (const std::exception&) {
    // Out of memory. It stays refused.
  }
  return 0;
}

int TlsStream::onNewSession(SSL* ssl, SSL_SESSION* session) {
  const auto* const stream = static_cast<const TlsStream*>(SSL_get_app_data(ssl));
  TlsHandle<SSL_SESSION> kept(session);
  try {
    stream->context_->sessions().keep(stream->server_, std::move(kept));
    return 1;
  } catch (const std::exception&) {
    // Out of memory: the session is OpenSSL's again, and the next connection makes one.
    static_cast<void>(kept.release());
    return 0;
  }
}

std::function<std::unique_ptr<Stream>(int fd, const Endpoint& endpoint)> tlsStreams(
    const Options& options, std::shared_ptr<const Logger> log) {
  return [context = std::make_shared<TlsContext>(options, std::move(log))](
             int fd, const Endpoint& endpoint) -> std::unique_ptr<Stream> {
    UniqueFd owned(fd);
    return std::make_unique<TlsStream>(std::move(owned), context, endpoint);
  };
}

}  // namespace rlock::detail::net
