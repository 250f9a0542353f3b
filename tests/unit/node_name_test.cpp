// SPDX-License-Identifier: Apache-2.0
#include "unit/fake_env.hpp"
#include <rlock/detail/executor/node_name.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace rlock::detail {
namespace node_name_test {
namespace {

class ChildEnv final : public FakeEnv {
 public:
  [[nodiscard]] bool abandoned() const noexcept override { return abandoned_; }
  void abandonInChild() noexcept override { abandoned_ = true; }

 private:
  bool abandoned_ = false;
};

TEST(NodeName, AConnectionSaysItBetter) {
  NodeName name(std::make_shared<FakeEnv>(), "first");
  EXPECT_EQ(name.get(), "first");
  name.set("second");
  EXPECT_EQ(name.get(), "second");
}

TEST(NodeName, IsEmptyInAForkedChild) {
  const auto env = std::make_shared<ChildEnv>();
  const NodeName name(env, "node");
  env->abandonInChild();
  EXPECT_EQ(name.get(), "") << "its mutex may be locked for ever";
}

TEST(NodeName, IsInErrorsWithWhatTheServerSaid) {
  const NodeName name(std::make_shared<FakeEnv>(), "node");
  const Error error = name.describe(Errc::denied, "NOPERM this user");
  EXPECT_EQ(error.errc(), Errc::denied);
  EXPECT_EQ(error.context().node, "node");
  EXPECT_EQ(error.context().serverMessage, "NOPERM this user");
}

TEST(NodeName, WhereThereWasNoServerTheTextIsOurOwn) {
  const NodeName name(std::make_shared<FakeEnv>(), "node");
  for (const Errc errc : {Errc::closed, Errc::connectionFailed}) {
    const Error error = name.describe(errc, "no connection in time");
    EXPECT_EQ(error.context().node, "node");
    EXPECT_EQ(error.context().serverMessage, "");
    EXPECT_EQ(error.message(), "no connection in time");
  }
}

}  // namespace
}  // namespace node_name_test
}  // namespace rlock::detail
