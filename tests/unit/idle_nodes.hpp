// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "unit/fake_env.hpp"
#include "unit/idle_link.hpp"
#include <rlock/detail/executor/cluster_nodes.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>

namespace rlock::detail {

/// The nodes of a cluster, with connections that are up when the test says so.
class IdleNodes {
 protected:
  static Endpoint address(std::uint16_t port) {
    Endpoint result;
    result.host = "127.0.0.1";
    result.port = port;
    return result;
  }
  /// Slots 0 and 1 have these masters; 0 is nobody.
  static SlotMap map(std::uint16_t first, std::uint16_t second) {
    SlotMap result;
    if (first != 0) {
      result.assign(0, address(first));
    }
    if (second != 0) {
      result.assign(1, address(second));
    }
    return result;
  }
  IdleLink& link(std::uint16_t port) { return *links_.at(port); }

 private:
  class NoOwner final : public NodeOwner {
   public:
    void nodeUp(Node& /*node*/, bool /*again*/, bool /*replaced*/) override {}
    bool nodeDown(Node& /*node*/, const Error& /*error*/) override { return false; }
    void guardChanged() noexcept override {}
    [[nodiscard]] bool needsTombstone() const noexcept override { return false; }
    void resend(const IntrusivePtr<Call>& /*call*/) override {}
    Follow redirect(Node& /*node*/, const IntrusivePtr<Call>& /*call*/) override {
      return Follow::no;
    }
    void outOfDate(Node& /*node*/) override {}
  };

  std::shared_ptr<FakeEnv> env_ = std::make_shared<FakeEnv>();
  std::shared_ptr<const Logger> log_ =
      std::make_shared<const Logger>([](LogLevel, std::string_view) {}, LogLevel::warning);
  NodeTerms terms_{
      env_, Options(), log_, std::make_shared<LiveNodes>(log_, Wants(), [](bool /*connected*/) {})};
  NoOwner owner_;
  std::map<std::uint16_t, std::shared_ptr<IdleLink>> links_;

 protected:
  int made_ = 0;
  ClusterNodes nodes_{[this](const Endpoint& at) {
    ++made_;
    return std::make_shared<Node>(
        terms_,
        [this, at](net::LinkEvents& /*events*/) {
          auto& link = links_[at.port];
          link = std::make_shared<IdleLink>();
          return link;
        },
        toString(at),
        owner_);
  }};
};

}  // namespace rlock::detail
