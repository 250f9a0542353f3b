// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/tls_handles.hpp"
#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/log.hpp>
#include <rlock/options.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace rlock::detail::net {

/// The last session with each server, to be resumed by the next connection to it.
///
/// **Thread safety:** any thread.
class TlsSessions {
 public:
  /// The sessions with so many servers are kept: nodes that come and go have new addresses.
  static constexpr std::size_t kMost = 64;

  /// Keeps the session in place of the one before, and of the oldest where there are too many.
  /// @throws std::bad_alloc  then the session is the caller's still
  void keep(const std::string& server, TlsHandle<SSL_SESSION>&& session) RLOCK_EXCLUDES(mutex_);
  /// Null if there is none that may still be used: a certificate that has expired since is not
  /// looked at again when a session is resumed.
  TlsHandle<SSL_SESSION> find(const std::string& server) RLOCK_EXCLUDES(mutex_);
  void forget(const std::string& server) noexcept RLOCK_EXCLUDES(mutex_);
  [[nodiscard]] std::size_t size() const RLOCK_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return sessions_.size();
  }

 private:
  struct Kept {
    TlsHandle<SSL_SESSION> session;
    std::uint64_t number = 0;  ///< the higher, the later it was kept
  };

  mutable AnnotatedMutex mutex_;
  std::map<std::string, Kept> sessions_ RLOCK_GUARDED_BY(mutex_);
  std::uint64_t kept_ RLOCK_GUARDED_BY(mutex_) = 0;
};

/// The ground that the encrypted connections of a client share: whom it trusts, its own
/// certificate, and the sessions. Servers are always verified; nothing switches that off.
///
/// **Thread safety:** any thread.
class TlsContext {
 public:
  /// Reads the files.
  /// @throws rlock::Error  invalidArgument, naming the file and what is wrong with it
  TlsContext(const Options& options, std::shared_ptr<const Logger> log);
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  /// A connection's own state, that has to prove to be talking to `name`: a host name or an
  /// address.
  /// @throws rlock::Error  connectionFailed, for want of memory
  [[nodiscard]] TlsHandle<SSL> connection(const std::string& name) const;

  /// The name that the server at the endpoint has to prove.
  [[nodiscard]] std::string nameOf(const Endpoint& endpoint) const;
  [[nodiscard]] bool hasCertificate() const noexcept { return hasCertificate_; }
  /// Whom it trusts, in words.
  [[nodiscard]] const std::string& trusted() const noexcept { return trusted_; }
  [[nodiscard]] TlsSessions& sessions() noexcept { return sessions_; }
  void log(LogLevel level, const std::string& text) const {
    if (log_) {
      log_->write(level, text);
    }
  }
  [[nodiscard]] bool logs(LogLevel level) const { return log_ && log_->enabled(level); }

 private:
  void trust(const Options& options);
  void showCertificate(const Options& options);

  const std::shared_ptr<const Logger> log_;
  const std::string serverName_;
  const bool hasCertificate_;
  std::string trusted_;
  TlsHandle<SSL_CTX> context_;
  TlsSessions sessions_;
};

}  // namespace rlock::detail::net
