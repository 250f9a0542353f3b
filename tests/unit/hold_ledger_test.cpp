// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/engine/hold_ledger.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::detail {
namespace {

class FakeGateWaiter final : public GateWaiter {
 public:
  void gateClosed() noexcept override {}
  void gateOpened() noexcept override { ++opened; }
  void gateShut() noexcept override { ++references; }
  void gateDropRef() noexcept override { --references; }

  int opened = 0;
  int references = 0;
};

/// A name with the object that keeps its bytes.
struct Name {
  explicit Name(std::string_view text) : bytes(std::make_shared<const std::string>(text)) {}
  std::shared_ptr<const std::string> bytes;

  [[nodiscard]] std::string_view view() const { return *bytes; }
};

HoldPtr find(HoldLedger& ledger, const Name& name, std::uint64_t owner) {
  return ledger.find(name.bytes, HoldKind::lock, name.view(), OwnerId{owner});
}

TEST(HoldLedger, MakesAnEntryOnlyOnce) {
  HoldLedger ledger;
  const Name name("orders");
  EXPECT_FALSE(ledger.peek(HoldKind::lock, name.view(), OwnerId{1}));
  const HoldPtr hold = find(ledger, name, 1);
  ASSERT_TRUE(hold);
  EXPECT_EQ(hold->name, "orders");
  EXPECT_EQ(hold->owner, OwnerId{1});
  EXPECT_EQ(hold->count, 0);
  EXPECT_FALSE(hold->busy);
  EXPECT_EQ(find(ledger, Name("orders"), 1), hold);
  EXPECT_EQ(ledger.peek(HoldKind::lock, "orders", OwnerId{1}), hold);
  EXPECT_EQ(ledger.size(), 1U);
}

TEST(HoldLedger, KeepsOwnersAndLocksApart) {
  HoldLedger ledger;
  const Name first("a");
  const Name second("b");
  const HoldPtr a1 = find(ledger, first, 1);
  const HoldPtr a2 = find(ledger, first, 2);
  const HoldPtr b1 = find(ledger, second, 1);
  EXPECT_NE(a1, a2);
  EXPECT_NE(a1, b1);
  EXPECT_EQ(ledger.size(), 3U);
  const std::vector<HoldPtr> all = ledger.all();
  EXPECT_EQ(all.size(), 3U);
  for (const HoldPtr& hold : {a1, a2, b1}) {
    EXPECT_EQ(std::count(all.begin(), all.end(), hold), 1);
  }
}

TEST(HoldLedger, TakesAnyBytesAsAName) {
  using namespace std::string_view_literals;
  HoldLedger ledger;
  const Name zero("a\0b"sv);
  const Name longer("a\0c"sv);
  EXPECT_NE(find(ledger, zero, 1), find(ledger, longer, 1));
  EXPECT_EQ(ledger.peek(HoldKind::lock, "a\0b"sv, OwnerId{1})->name, "a\0b"sv);
  EXPECT_FALSE(ledger.peek(HoldKind::lock, "a"sv, OwnerId{1}));
}

TEST(HoldLedger, KeepsTheBytesOfANameAsLongAsItsEntry) {
  HoldLedger ledger;
  std::weak_ptr<const std::string> bytes;
  {
    const Name name(std::string(1000, 'x'));
    bytes = name.bytes;
    FakeGateWaiter waiter;
    const HoldPtr hold = find(ledger, name, 1);
    ASSERT_TRUE(HoldLedger::enter(*hold, waiter));
  }
  ASSERT_FALSE(bytes.expired());
  {
    const HoldPtr hold = ledger.peek(HoldKind::lock, std::string(1000, 'x'), OwnerId{1});
    ASSERT_TRUE(hold);
    EXPECT_EQ(ledger.leave(*hold), nullptr);
  }
  EXPECT_TRUE(bytes.expired());
  EXPECT_EQ(ledger.size(), 0U);
}

// ---- The gate

TEST(HoldLedger, GateLetsOneInAfterTheOther) {
  HoldLedger ledger;
  const HoldPtr hold = find(ledger, Name("a"), 1);
  FakeGateWaiter first;
  FakeGateWaiter second;
  FakeGateWaiter third;
  EXPECT_TRUE(HoldLedger::enter(*hold, first));
  EXPECT_EQ(first.references, 0);
  EXPECT_FALSE(HoldLedger::enter(*hold, second));
  EXPECT_FALSE(HoldLedger::enter(*hold, third));
  EXPECT_EQ(second.references, 1);
  EXPECT_EQ(third.references, 1);

  EXPECT_EQ(ledger.leave(*hold), &second);
  EXPECT_TRUE(hold->busy);
  EXPECT_EQ(second.references, 1) << "the caller drops it after gateOpened()";
  EXPECT_EQ(second.opened, 0) << "the caller tells it";
  EXPECT_FALSE(HoldLedger::enter(*hold, first)) << "the gate was passed on, not opened";
  EXPECT_EQ(ledger.leave(*hold), &third);
  EXPECT_EQ(ledger.leave(*hold), &first);
  EXPECT_TRUE(hold->busy);
  EXPECT_EQ(ledger.leave(*hold), nullptr);
  EXPECT_FALSE(hold->busy);
  EXPECT_EQ(ledger.size(), 0U);
}

TEST(HoldLedger, SendsEverybodyAwayFromAllGates) {
  HoldLedger ledger;
  const Name name("orders");
  const std::vector<HoldPtr> holds = {
      find(ledger, name, 1), find(ledger, name, 2), find(ledger, name, 3), find(ledger, name, 4)};
  std::vector<FakeGateWaiter> waiters(10);
  std::size_t next = 0;
  for (const std::size_t atGate : {0U, 1U, 2U, 3U}) {
    const HoldPtr& hold = holds[atGate];
    for (std::size_t i = 0; i <= atGate; ++i) {
      EXPECT_EQ(HoldLedger::enter(*hold, waiters[next++]), i == 0);
    }
  }
  std::set<GateWaiter*> dismissed;
  for (GateWaiter* waiter = ledger.dismissAll(); waiter != nullptr;
       waiter = HoldLedger::next(*waiter)) {
    EXPECT_TRUE(dismissed.insert(waiter).second);
  }
  EXPECT_EQ(dismissed.size(), 6U);
  EXPECT_EQ(ledger.dismissAll(), nullptr);
  for (const HoldPtr& hold : holds) {
    EXPECT_EQ(ledger.leave(*hold), nullptr);
  }
  EXPECT_EQ(ledger.size(), 0U);
}

TEST(HoldLedger, GatesOfDifferentHoldsAreIndependent) {
  HoldLedger ledger;
  FakeGateWaiter waiter;
  const Name name("a");
  EXPECT_TRUE(HoldLedger::enter(*find(ledger, name, 1), waiter));
  EXPECT_TRUE(HoldLedger::enter(*find(ledger, name, 2), waiter));
  EXPECT_TRUE(HoldLedger::enter(*find(ledger, Name("b"), 1), waiter));
}

// ---- Forgetting

TEST(HoldLedger, KeepsWhatIsHeld) {
  HoldLedger ledger;
  const HoldPtr hold = find(ledger, Name("a"), 1);
  FakeGateWaiter waiter;
  HoldLedger::enter(*hold, waiter);
  hold->count = 1;
  EXPECT_EQ(ledger.leave(*hold), nullptr);
  EXPECT_EQ(ledger.size(), 1U);
  EXPECT_EQ(ledger.peek(HoldKind::lock, "a", OwnerId{1}), hold);

  hold->count = 0;
  ledger.forgetIfUnused(*hold);
  EXPECT_EQ(ledger.size(), 0U);
}

TEST(HoldLedger, KeepsWhatSomebodyWorksOn) {
  HoldLedger ledger;
  const HoldPtr hold = find(ledger, Name("a"), 1);
  FakeGateWaiter inside;
  FakeGateWaiter waiting;
  HoldLedger::enter(*hold, inside);
  HoldLedger::enter(*hold, waiting);
  ledger.forgetIfUnused(*hold);
  EXPECT_EQ(ledger.size(), 1U);
  ASSERT_EQ(ledger.leave(*hold), &waiting);
  ledger.forgetIfUnused(*hold);
  EXPECT_EQ(ledger.size(), 1U);
  EXPECT_EQ(ledger.leave(*hold), nullptr);
  EXPECT_EQ(ledger.size(), 0U);
}

TEST(HoldLedger, LateNewsOfAForgottenHoldDoesNotTouchItsSuccessor) {
  HoldLedger ledger;
  const Name name("a");
  FakeGateWaiter waiter;
  const HoldPtr old = find(ledger, name, 1);
  ledger.forgetIfUnused(*old);
  ASSERT_EQ(ledger.size(), 0U);

  const HoldPtr next = find(ledger, name, 1);
  ASSERT_NE(next, old);
  HoldLedger::enter(*next, waiter);
  next->count = 1;
  ledger.leave(*next);

  ledger.forgetIfUnused(*old);
  EXPECT_EQ(ledger.peek(HoldKind::lock, "a", OwnerId{1}), next);
}

TEST(HoldLedger, HoldsManyOwnersOfManyLocks) {
  HoldLedger ledger;
  std::vector<Name> names;
  for (int i = 0; i < 100; ++i) {
    names.emplace_back("lock-" + std::to_string(i));
  }
  for (const Name& name : names) {
    for (std::uint64_t owner = 1; owner <= 100; ++owner) {
      find(ledger, name, owner)->count = static_cast<int>(owner);
    }
  }
  EXPECT_EQ(ledger.size(), 10'000U);
  for (const Name& name : names) {
    for (std::uint64_t owner = 1; owner <= 100; ++owner) {
      const HoldPtr hold = ledger.peek(HoldKind::lock, name.view(), OwnerId{owner});
      ASSERT_TRUE(hold);
      ASSERT_EQ(hold->count, static_cast<int>(owner));
      hold->count = 0;
      ledger.forgetIfUnused(*hold);
    }
  }
  EXPECT_EQ(ledger.size(), 0U);
}

TEST(HoldLedger, FindsTheHoldsOfANameAndOfAnOwner) {
  HoldLedger ledger;
  const Name first("a");
  const Name second("b");
  for (std::uint64_t owner = 1; owner <= 200; ++owner) {
    find(ledger, first, owner)->count = 1;
  }
  const HoldPtr other = find(ledger, second, 7);
  const HoldPtr read = ledger.find(first.bytes, HoldKind::read, first.view(), OwnerId{7});
  EXPECT_EQ(ledger.named("a").size(), 201U);
  EXPECT_EQ(ledger.named("b"), std::vector{other});
  EXPECT_TRUE(ledger.named("c").empty());
  EXPECT_EQ(ledger.ownedBy(OwnerId{7}).size(), 3U);
  EXPECT_TRUE(ledger.ownedBy(OwnerId{201}).empty());
  ledger.forgetIfUnused(*other);
  ledger.forgetIfUnused(*read);
  EXPECT_EQ(ledger.ownedBy(OwnerId{7}).size(), 1U);
  EXPECT_TRUE(ledger.named("b").empty());
  EXPECT_EQ(ledger.all().size(), 200U);
}

TEST(HoldLedger, AHoldIsSmall) {
  // With 100,000 of them each byte counts; of the heap it takes this and nothing else: with the
  // header of glibc's blocks no more than 320 bytes would.
  EXPECT_LE(sizeof(Hold), 328U);
}

}  // namespace
}  // namespace rlock::detail
