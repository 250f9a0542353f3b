// SPDX-License-Identifier: Apache-2.0
#include "net/tls_context.hpp"

#include "net/tls_errors.hpp"
#include "net/tls_stream.hpp"
#include <rlock/error.hpp>

#include <fmt/format.h>
#include <openssl/err.h>

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace rlock::detail::net {

namespace {

[[noreturn]] void refuseFile(std::string_view option, const std::string& path, std::string reason) {
  throw Error(Errc::invalidArgument,
              fmt::format("option {}: {}: {}", option, escapeForDisplay(path), reason));
}

/// OpenSSL says less of a file that cannot be read.
void checkReadable(std::string_view option, const std::string& path, bool directory) {
  struct stat facts {};
  const int wanted = directory ? R_OK | X_OK : R_OK;
  if (::stat(path.c_str(), &facts) != 0) {
    refuseFile(option, path, std::strerror(errno));
  }
  if (S_ISDIR(facts.st_mode) != directory) {
    refuseFile(option, path, directory ? "not a directory" : "a directory");
  }
  if (::access(path.c_str(), wanted) != 0) {
    refuseFile(option, path, std::strerror(errno));
  }
}

/// Called by OpenSSL; never asks at the terminal, as OpenSSL's own function does.
int givePassword(char* buffer, int size, int, void* password) {
  const auto& text = *static_cast<const std::string*>(password);
  if (size < 0 || text.size() > static_cast<std::size_t>(size)) {
    return -1;
  }
  std::copy(text.begin(), text.end(), buffer);
  return static_cast<int>(text.size());
}

/// The address without an IPv6 zone, which no certificate has.
std::string withoutZone(const std::string& host) {
  return host.find(':') == std::string::npos ? host : host.substr(0, host.find('%'));
}

bool isAddress(const std::string& name) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return ::inet_pton(AF_INET, name.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), bytes.data()) == 1;
}

TlsHandle<SSL_CTX> newContext() {
  // OpenSSL must not be taken down before the last static object and the last thread that use it.
  OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr);
  ERR_clear_error();
  TlsHandle<SSL_CTX> context(SSL_CTX_new(TLS_client_method()));
  // The system's configuration may ask for more.
  if (!context || (SSL_CTX_get_min_proto_version(context.get()) < TLS1_2_VERSION &&
                   SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) != 1)) {
    throw Error(Errc::invalidArgument, "OpenSSL cannot be used: " + tlsReason(ENOMEM));
  }
  // Redis never asks for one; it would be a second handshake in the middle of the replies.
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION);
  // After a partial write the rest is in another place: output moves on in its queue.
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                       SSL_MODE_AUTO_RETRY | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, &TlsStream::onVerify);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
  SSL_CTX_sess_set_new_cb(context.get(), &TlsStream::onNewSession);
  return context;
}

}  // namespace

void TlsSessions::keep(const std::string& server, TlsHandle<SSL_SESSION>&& session) {
  const MutexLock lock(mutex_);
  Kept& kept = sessions_[server];
  kept.session = std::move(session);
  kept.number = ++kept_;
  if (sessions_.size() > kMost) {
    sessions_.erase(std::min_element(
        sessions_.begin(), sessions_.end(), [](const auto& one, const auto& other) {
          return one.second.number < other.second.number;
        }));
  }
}

TlsHandle<SSL_SESSION> TlsSessions::find(const std::string& server) {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(server);
  if (found == sessions_.end()) {
    return nullptr;
  }
  // A resumed session shows no certificate, so one that has expired since would pass unseen.
  SSL_SESSION* const session = found->second.session.get();
  const X509* const certificate = SSL_SESSION_get0_peer(session);
  if (SSL_SESSION_is_resumable(session) != 1 || certificate == nullptr ||
      X509_cmp_current_time(X509_get0_notAfter(certificate)) <= 0) {
    sessions_.erase(found);
    return nullptr;
  }
  SSL_SESSION_up_ref(session);
  return TlsHandle<SSL_SESSION>(session);
}

void TlsSessions::forget(const std::string& server) noexcept {
  const MutexLock lock(mutex_);
  sessions_.erase(server);
}

TlsContext::TlsContext(const Options& options, std::shared_ptr<const Logger> log)
    : log_(std::move(log)),
      serverName_(options.tlsServerName),
      hasCertificate_(!options.tlsCertFile.empty()),
      context_(newContext()) {
  trust(options);
  if (hasCertificate_) {
    showCertificate(options);
  }
}

void TlsContext::trust(const Options& options) {
  // A certificate that is named is trusted, be it of a root, of an issuer below, or the server's.
  X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context_.get()), X509_V_FLAG_PARTIAL_CHAIN);
  const auto name = [this](std::string_view what, const std::string& path) {
    trusted_.append(trusted_.empty() ? "" : " and ")
        .append(what)
        .append(" ")
        .append(escapeForDisplay(path));
  };
  if (!options.tlsCaFile.empty()) {
    checkReadable("tlsCaFile", options.tlsCaFile, false);
    if (SSL_CTX_load_verify_file(context_.get(), options.tlsCaFile.c_str()) != 1) {
      refuseFile("tlsCaFile", options.tlsCaFile, tlsReason(errno));
    }
    name("those in tlsCaFile", options.tlsCaFile);
  }
  if (!options.tlsCaPath.empty()) {
    checkReadable("tlsCaPath", options.tlsCaPath, true);
    if (SSL_CTX_load_verify_dir(context_.get(), options.tlsCaPath.c_str()) != 1) {
      refuseFile("tlsCaPath", options.tlsCaPath, tlsReason(errno));
    }
    name("those that \"openssl rehash\" has named in tlsCaPath", options.tlsCaPath);
  }
  if (trusted_.empty()) {
    SSL_CTX_set_default_verify_paths(context_.get());
    trusted_ = "those of this system; name others with tlsCaFile";
  }
  ERR_clear_error();
}

void TlsContext::showCertificate(const Options& options) {
  checkReadable("tlsCertFile", options.tlsCertFile, false);
  if (SSL_CTX_use_certificate_chain_file(context_.get(), options.tlsCertFile.c_str()) != 1) {
    refuseFile("tlsCertFile", options.tlsCertFile, tlsReason(errno));
  }
  const bool apart = !options.tlsKeyFile.empty();
  const std::string_view option = apart ? "tlsKeyFile" : "tlsCertFile";
  const std::string& path = apart ? options.tlsKeyFile : options.tlsCertFile;
  checkReadable(option, path, false);
  std::string password = options.tlsKeyPassword;
  SSL_CTX_set_default_passwd_cb(context_.get(), &givePassword);
  SSL_CTX_set_default_passwd_cb_userdata(context_.get(), &password);
  // OpenSSL compares the key with the certificate here, too.
  const bool usable =
      SSL_CTX_use_PrivateKey_file(context_.get(), path.c_str(), SSL_FILETYPE_PEM) == 1;
  // OpenSSL has the address of the password, which ends with this function.
  SSL_CTX_set_default_passwd_cb_userdata(context_.get(), nullptr);
  SSL_CTX_set_default_passwd_cb(context_.get(), nullptr);
  OPENSSL_cleanse(password.data(), password.size());
  if (!usable) {
    refuseFile(
        option,
        path,
        fmt::format("the private key cannot be used: {} ({})",
                    tlsReason(errno),
                    options.tlsKeyPassword.empty() ? "one that is encrypted needs tlsKeyPassword"
                                                   : "it is read with tlsKeyPassword"));
  }
  ERR_clear_error();
}

TlsHandle<SSL> TlsContext::connection(const std::string& name) const {
  ERR_clear_error();
  TlsHandle<SSL> ssl(SSL_new(context_.get()));
  TlsHandle<BIO> input(BIO_new(BIO_s_mem()));
  TlsHandle<BIO> output(BIO_new(BIO_s_mem()));
  bool made = ssl && input && output;
  if (made) {
    // An empty buffer means that more is to come; the end of the connection is told otherwise.
    BIO_set_mem_eof_return(input.get(), -1);
    SSL_set_bio(ssl.get(), input.release(), output.release());
    SSL_set_connect_state(ssl.get());
    if (isAddress(name)) {
      // Addresses are no server names in TLS, and are compared with addresses only.
      made = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl.get()), name.c_str()) == 1;
    } else {
      SSL_set_hostflags(ssl.get(), X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
      made = SSL_set1_host(ssl.get(), name.c_str()) == 1 &&
             SSL_ctrl(ssl.get(),
                      SSL_CTRL_SET_TLSEXT_HOSTNAME,
                      TLSEXT_NAMETYPE_host_name,
                      const_cast<char*>(name.c_str())) == 1;
    }
  }
  if (!made) {
    throw Error(Errc::connectionFailed, "no TLS could be made: " + tlsReason(ENOMEM));
  }
  return ssl;
}

std::string TlsContext::nameOf(const Endpoint& endpoint) const {
  std::string name = withoutZone(serverName_.empty() ? endpoint.host : serverName_);
  // The dot makes a name complete for the resolver; certificates are without.
  if (name.size() > 1 && name.ends_with('.')) {
    name.pop_back();
  }
  return name;
}

}  // namespace rlock::detail::net
