// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/net/request.hpp>

#include <array>
#include <string_view>

namespace rlock::detail {

/// Lets a node of a cluster execute the next command of its connection although the slot is not its
/// own yet. The answer has nothing to say.
class Asking final : public net::LoneRequest {
 public:
  static constexpr std::array<std::string_view, 1> kArgv{"ASKING"};

  Asking() noexcept : LoneRequest(Purpose::upkeep) {}

 private:
  void completed() noexcept override {}
};

}  // namespace rlock::detail
