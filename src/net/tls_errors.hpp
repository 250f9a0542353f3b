// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/stream.hpp"

#include <openssl/x509.h>

#include <string>

namespace rlock::detail::net {

// The meaning of OpenSSL's errors, in words. Pure but for OpenSSL's queue of errors, which each
// thread has its own of.

/// The reason that is first in this thread's queue, or what `error` of errno says; the queue is
/// empty afterwards.
std::string tlsReason(int error);

/// Subject, issuer and dates. Printable, whoever made the certificate.
std::string describeCertificate(X509* certificate);

/// Why the server's certificate is not accepted: the error `code` of X509_V_ERR_* about
/// `certificate`, which may be one of its chain and may be null.
/// @param expected  the name or address that the server has to prove
/// @param trusted   in words, whom this client trusts
std::string describeRefusal(int code,
                            X509* certificate,
                            const std::string& expected,
                            const std::string& trusted);

/// The reason for the end of a failed call, by the first error in this thread's queue, which is
/// empty afterwards.
/// @param hasCertificate  whether this client has one to show
StreamFailure explainTlsFailure(bool hasCertificate);

}  // namespace rlock::detail::net
