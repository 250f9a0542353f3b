// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>

namespace rlock::detail::net {

/// Gives an object of OpenSSL back.
struct TlsDeleter {
  void operator()(SSL_CTX* object) const noexcept { SSL_CTX_free(object); }
  void operator()(SSL* object) const noexcept { SSL_free(object); }
  void operator()(SSL_SESSION* object) const noexcept { SSL_SESSION_free(object); }
  void operator()(BIO* object) const noexcept { BIO_free(object); }
  void operator()(GENERAL_NAMES* object) const noexcept { GENERAL_NAMES_free(object); }
};

template <class T>
using TlsHandle = std::unique_ptr<T, TlsDeleter>;

}  // namespace rlock::detail::net
