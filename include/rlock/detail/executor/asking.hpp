// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/net/request.hpp>

#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// Lets a node of a cluster execute the next command of its connection although the slot is not its
/// own yet. Only a refusal has something to say: why that command is redirected.
class Asking final : public net::LoneRequest {
 public:
  static constexpr std::array<std::string_view, 1> kArgv{"ASKING"};

  /// @param refused  is given the server's words before the next command is answered. Does not
  ///                 throw. Loop thread.
  explicit Asking(UniqueFunction<void(const std::string&)> refused) noexcept
      : LoneRequest(Purpose::upkeep), refused_(std::move(refused)) {}

 private:
  void completed() noexcept override {
    if (delivery() == Delivery::replied && reply().isError()) {
      refused_(reply().text);
    }
  }

  UniqueFunction<void(const std::string&)> refused_;
};

}  // namespace rlock::detail
