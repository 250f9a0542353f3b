// SPDX-License-Identifier: Apache-2.0
#include "objects/client_core.hpp"

#include "unit/engine_fixture.hpp"
#include "unit/manual_env.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string_view>

namespace rlock::detail {
namespace client_core_test {
namespace {

// A thread that closes a client may give up waiting for its loop, and destroy the client.
TEST(ClientCoreTest, ItIsKeptUntilItsLoopHasEnded) {
  const auto env = std::make_shared<ManualEnv>();
  const auto log =
      std::make_shared<const Logger>([](LogLevel, std::string_view) {}, LogLevel::error);
  const auto core = std::make_shared<ClientCore>(
      ClientWorld{
          env,
          net::Transports{[](net::LinkEvents&) { return std::make_shared<NoCommands>(); },
                          [](net::PubSubEvents&) { return std::make_unique<NoSubscriptions>(); }},
          true},
      "client",
      Options::fromUri("redis://host"),
      log);
  EXPECT_TRUE(env->kept.expired());
  // Nobody else would run the loop.
  env->setOnLoopThread(true);
  core->close(std::chrono::milliseconds(0));
  EXPECT_EQ(env->kept.lock(), core);
  env->runPosted();
}

}  // namespace
}  // namespace client_core_test
}  // namespace rlock::detail
