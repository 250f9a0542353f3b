// SPDX-License-Identifier: Apache-2.0

// Messages for failures of TLS. TlsContext wants them for files and settings that cannot be used,
// TlsStream for a certificate that it refuses and a call that has failed; both ask on the thread of
// the call in question, since OpenSSL keeps its errors by thread. A message says what to correct
// where that is known. Words of a certificate are made printable and cut, for its maker may be
// anybody. These functions throw only for want of memory.
#include "net/tls_errors.hpp"

#include "net/tls_handles.hpp"
#include <rlock/error.hpp>

#include <fmt/format.h>
#include <openssl/err.h>

#include <arpa/inet.h>
#include <array>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <string_view>
#include <sys/socket.h>

namespace rlock::detail::net {

namespace {

constexpr std::size_t kLongestCertificateName = 200;
constexpr int kNamesListed = 8;

std::string nameText(const X509_NAME* name) {
  const TlsHandle<BIO> text(BIO_new(BIO_s_mem()));
  if (!text ||
      X509_NAME_print_ex(text.get(), name, 0, XN_FLAG_RFC2253 & ~ASN1_STRFLGS_ESC_MSB) < 0) {
    return "unreadable";
  }
  // A certificate says what its maker wants: control characters do not go into logs.
  char* data = nullptr;
  const long size = BIO_get_mem_data(text.get(), &data);
  const std::string_view bytes(data, static_cast<std::size_t>(size));
  return bytes.empty() ? "no name" : escapeForDisplay(bytes, kLongestCertificateName);
}

std::string dateText(const ASN1_TIME* time) {
  std::tm parts{};
  std::array<char, 32> text{};
  if (ASN1_TIME_to_tm(time, &parts) != 1 ||
      std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts) == 0) {
    return "an unreadable date";
  }
  return text.data();
}

std::string addressText(const ASN1_OCTET_STRING* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const int size = ASN1_STRING_length(address);
  const int family = size == 4 ? AF_INET : AF_INET6;
  if ((size != 4 && size != 16) ||
      ::inet_ntop(family, ASN1_STRING_get0_data(address), text.data(), text.size()) == nullptr) {
    return "unreadable";
  }
  return text.data();
}

/// The names and addresses that a certificate is for.
std::string namesOf(X509* certificate) {
  const TlsHandle<GENERAL_NAMES> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::string text;
  int listed = 0;
  const int count = names ? sk_GENERAL_NAME_num(names.get()) : 0;
  for (int i = 0; i < count; ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    std::string one;
    if (name->type == GEN_DNS) {
      one = escapeForDisplay({reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)),
                              static_cast<std::size_t>(ASN1_STRING_length(name->d.dNSName))},
                             kLongestCertificateName);
    } else if (name->type == GEN_IPADD) {
      one = addressText(name->d.iPAddress);
    } else {
      continue;
    }
    // Certificates of large services have hundreds of names.
    if (++listed > kNamesListed) {
      return text + ", ...";
    }
    text.append(text.empty() ? "" : ", ").append(one);
  }
  return text.empty() ? "no name but its subject's" : text;
}

/// The alert that the peer sent; -1 when the error is none.
int alertOf(unsigned long error) {
  const int reason = ERR_GET_REASON(error);
  return ERR_GET_LIB(error) == ERR_LIB_SSL && reason >= SSL_AD_REASON_OFFSET &&
                 reason < SSL_AD_REASON_OFFSET + 256
             ? reason - SSL_AD_REASON_OFFSET
             : -1;
}

bool isAboutClientCertificate(int alert) {
  switch (alert) {
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_REVOKED:
    case SSL_AD_CERTIFICATE_EXPIRED:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_UNKNOWN_CA:
    case SSL_AD_ACCESS_DENIED:
    case SSL_AD_CERTIFICATE_REQUIRED:
      return true;
    default:
      return false;
  }
}

bool isAboutVersion(unsigned long error) {
  switch (ERR_GET_REASON(error)) {
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_WRONG_SSL_VERSION:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
      return true;
    default:
      return false;
  }
}

std::string reasonText(unsigned long error) {
  const char* const text = ERR_reason_error_string(error);
  return text != nullptr ? text : fmt::format("OpenSSL error {:#x}", error);
}

}  // namespace

/// OpenSSL keeps its errors in a queue of the thread, the first cause first. The queue is emptied
/// here, so that the next call does not report an error of this one.
std::string tlsReason(int error) {
  const unsigned long first = ERR_peek_error();
  ERR_clear_error();
  if (first == 0 || ERR_SYSTEM_ERROR(first)) {
    return std::strerror(first == 0 ? error : ERR_GET_REASON(first));
  }
  return reasonText(first);
}

std::string describeCertificate(X509* certificate) {
  return fmt::format("subject \"{}\", issuer \"{}\", valid from {} to {}",
                     nameText(X509_get_subject_name(certificate)),
                     nameText(X509_get_issuer_name(certificate)),
                     dateText(X509_get0_notBefore(certificate)),
                     dateText(X509_get0_notAfter(certificate)));
}

std::string describeRefusal(int code,
                            X509* certificate,
                            const std::string& expected,
                            const std::string& trusted) {
  std::string text = "the server's certificate is not accepted: ";
  switch (code) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      text += fmt::format(
          "it is not for {}, but for {}; connect by a name that it is for, or say "
          "with tlsServerName which one is right",
          expected,
          certificate == nullptr ? "others" : namesOf(certificate));
      break;
    case X509_V_ERR_CERT_HAS_EXPIRED:
      text += "it has expired";
      break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
      text += "it is not yet valid, by the clock of this machine";
      break;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
      text += fmt::format("it is self-signed and is not among those that are trusted, {}", trusted);
      break;
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_UNTRUSTED:
      text += fmt::format("its issuer is not among those that are trusted, {}", trusted);
      break;
    default:
      text += X509_verify_cert_error_string(code);
      break;
  }
  if (certificate != nullptr) {
    text += "; " + describeCertificate(certificate);
  }
  return text;
}

StreamFailure explainTlsFailure(bool hasCertificate) {
  // Looked at before tlsReason(), which empties the queue.
  const unsigned long error = ERR_peek_error();
  const int alert = alertOf(error);
  const std::string reason = tlsReason(EPROTO);
  if (isAboutClientCertificate(alert)) {
    return {Errc::authenticationFailed,
            (hasCertificate
                 ? "the server does not accept the client's certificate (tlsCertFile): "
                 : "the server wants a certificate of the client; name one with tlsCertFile: ") +
                reason};
  }
  if (isAboutVersion(error)) {
    return {Errc::protocolError,
            "client and server have no version of TLS in common; this client speaks 1.2 and "
            "later: " +
                reason};
  }
  // Servers of TLS 1.2 have no alert for a certificate that they miss.
  if (alert == SSL_AD_HANDSHAKE_FAILURE && !hasCertificate) {
    return {Errc::protocolError,
            "the server refused the TLS handshake; it may want a certificate of the client "
            "(tlsCertFile): " +
                reason};
  }
  return {Errc::protocolError, "TLS failed: " + reason};
}

}  // namespace rlock::detail::net
