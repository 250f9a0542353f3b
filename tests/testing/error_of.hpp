// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/error.hpp>

#include <optional>

namespace rlock::test {

/// Of the rlock::Error that a call ends with; empty: it ends without one.
template <class Call>
std::optional<Errc> errorOf(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.errc();
  }
  return std::nullopt;
}

}  // namespace rlock::test
