// SPDX-License-Identifier: Apache-2.0

// A walk through the names, with a server whose answers the test gives.

#include "unit/pending_commands.hpp"
#include "unit/replies.hpp"
#include <rlock/detail/engine/name_walk.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace rlock::detail {
namespace name_walk_test {
namespace {

using test::listReply;
using test::numberReply;
using test::textReply;

/// One step of the walk has found this name.
Reply page(std::string cursor, std::string name) {
  Reply::Elements names;
  names.push_back(textReply(std::move(name)));
  Reply::Elements step;
  step.push_back(textReply(std::move(cursor)));
  step.push_back(listReply(std::move(names)));
  return listReply(std::move(step));
}

/// A semaphore with five permits stands under the name.
Reply semaphore() {
  Reply::Elements content;
  content.push_back(textReply("5"));
  Reply::Elements look;
  look.push_back(textReply("string"));
  look.push_back(numberReply(-1));
  look.push_back(listReply(std::move(content)));
  look.push_back(listReply({}));
  look.push_back(textReply(""));
  look.push_back(listReply({}));
  look.push_back(numberReply(0));
  look.push_back(listReply({}));
  return listReply(std::move(look));
}

// The server may tell a name twice while it rearranges its keys.
TEST(NameWalk, ANameThatComesTwiceIsLookedAtOnce) {
  PendingEngine world(Options::fromUri("redis://host"));
  world.connect();
  std::optional<Result<NameWalk::Found>> found;
  std::make_shared<NameWalk>(world.engine, "*")->start([&](Result<NameWalk::Found> result) {
    found.emplace(std::move(result));
  });
  const auto answer = [&](Reply reply) {
    world.env->runPosted();
    ASSERT_EQ(world.server->underWay(), 1U);
    world.server->answer(std::move(reply));
    world.env->runPosted();
  };
  answer(page("17", "gates"));
  answer(semaphore());
  EXPECT_FALSE(found.has_value());
  answer(page("0", "gates"));
  EXPECT_EQ(world.server->underWay(), 0U);
  ASSERT_TRUE(found.has_value());
  ASSERT_TRUE(found->has_value());
  EXPECT_EQ((*found)->size(), 1U);
}

}  // namespace
}  // namespace name_walk_test
}  // namespace rlock::detail
