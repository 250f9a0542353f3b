// SPDX-License-Identifier: Apache-2.0
#include "tls/certificates.hpp"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <stdexcept>
#include <utility>

namespace rlock::test {

namespace {

struct Deleter {
  void operator()(EVP_PKEY* object) const noexcept { EVP_PKEY_free(object); }
  void operator()(X509* object) const noexcept { X509_free(object); }
  void operator()(X509_EXTENSION* object) const noexcept { X509_EXTENSION_free(object); }
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
template <class T>
using Owned = std::unique_ptr<T, Deleter>;

void check(bool good, const char* what) {
  if (!good) {
    throw std::runtime_error(what);
  }
}

Owned<EVP_PKEY> newKey() {
  Owned<EVP_PKEY> key(EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256"));
  check(key != nullptr, "EVP_PKEY_Q_keygen");
  return key;
}

void addExtension(X509* certificate, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Owned<X509_EXTENSION> extension(X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str()));
  check(extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1,
        "an extension");
}

/// @param issuer  null: itself
Owned<X509> newCertificate(
    const CertificateSpec& spec, EVP_PKEY* key, X509* issuer, EVP_PKEY* issuerKey, bool isCa) {
  static long serial = 1000;
  Owned<X509> certificate(X509_new());
  check(certificate != nullptr, "X509_new");
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), spec.from.count());
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), spec.until.count());
  X509_set_pubkey(certificate.get(), key);
  X509_NAME* const name = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(name,
                             "CN",
                             MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(spec.commonName.c_str()),
                             -1,
                             -1,
                             0);
  X509* const by = issuer == nullptr ? certificate.get() : issuer;
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(by));
  if (isCa) {
    addExtension(certificate.get(), by, NID_basic_constraints, "critical,CA:TRUE");
    addExtension(certificate.get(), by, NID_subject_key_identifier, "hash");
  }
  if (!spec.names.empty()) {
    addExtension(certificate.get(), by, NID_subject_alt_name, spec.names);
  }
  check(X509_sign(certificate.get(), issuerKey, EVP_sha256()) > 0, "X509_sign");
  return certificate;
}

void writeCertificate(const std::string& path, X509* certificate) {
  const Owned<std::FILE> file(std::fopen(path.c_str(), "we"));
  check(file != nullptr && PEM_write_X509(file.get(), certificate) == 1, "writing a certificate");
}

void writeKey(const std::string& path, EVP_PKEY* key, std::string password) {
  const Owned<std::FILE> file(std::fopen(path.c_str(), "we"));
  const bool secret = !password.empty();
  check(file != nullptr && PEM_write_PKCS8PrivateKey(file.get(),
                                                     key,
                                                     secret ? EVP_aes_256_cbc() : nullptr,
                                                     secret ? password.data() : nullptr,
                                                     static_cast<int>(password.size()),
                                                     nullptr,
                                                     nullptr) == 1,
        "writing a key");
}

}  // namespace

struct TestCa::Impl {
  Owned<EVP_PKEY> key;
  Owned<X509> certificate;
};

TestCa::TestCa(std::string name)
    : file_(directory_.file("ca.pem")), impl_(std::make_unique<Impl>()) {
  CertificateSpec spec;
  spec.commonName = std::move(name);
  spec.names.clear();
  impl_->key = newKey();
  impl_->certificate = newCertificate(spec, impl_->key.get(), nullptr, impl_->key.get(), true);
  writeCertificate(file_, impl_->certificate.get());
}

TestCa::~TestCa() = default;

CertificateFiles TestCa::issue(const CertificateSpec& spec) {
  const std::string number = std::to_string(++issued_);
  CertificateFiles files{directory_.file("cert" + number + ".pem"),
                         directory_.file("key" + number + ".pem")};
  const auto key = newKey();
  const auto certificate =
      spec.selfSigned
          ? newCertificate(spec, key.get(), nullptr, key.get(), false)
          : newCertificate(spec, key.get(), impl_->certificate.get(), impl_->key.get(), false);
  writeCertificate(files.certificate, certificate.get());
  writeKey(files.key, key.get(), spec.keyPassword);
  return files;
}

}  // namespace rlock::test
