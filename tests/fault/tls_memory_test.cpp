// SPDX-License-Identifier: Apache-2.0

// Encrypted connections while there is no memory.

#include "fault/faults.hpp"
#include "net/tls_context.hpp"

#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <new>
#include <string>
#include <utility>

namespace rlock::test {
namespace {

using ::rlock::detail::net::TlsHandle;
using ::rlock::detail::net::TlsSessions;

/// OpenSSL takes back what it is told was not kept.
TEST(TlsMemory, ASessionThatCannotBeKeptIsItsOwners) {
  TlsSessions sessions;
  const std::string server(100, 's');
  for (long k = 1;; ++k) {
    ASSERT_LT(k, 10) << "it never succeeds";
    TlsHandle<SSL_SESSION> session(SSL_SESSION_new());
    const FailedAllocation fault(k, FailedAllocation::Of::thisThread);
    try {
      sessions.keep(server, std::move(session));
      EXPECT_GT(k, 1) << "nothing was allocated";
      break;
    } catch (const std::bad_alloc&) {
      EXPECT_TRUE(session);  // NOLINT(bugprone-use-after-move): it was not moved then
    }
  }
  EXPECT_EQ(sessions.size(), 1U);
}

}  // namespace
}  // namespace rlock::test
