// SPDX-License-Identifier: Apache-2.0
#include <rlock/observer.hpp>
#include <rlock/stats.hpp>

namespace rlock {

std::string_view toString(WaitedEvent::Outcome outcome) noexcept {
  switch (outcome) {
    case WaitedEvent::Outcome::acquired:
      return "acquired";
    case WaitedEvent::Outcome::refused:
      return "refused";
    case WaitedEvent::Outcome::failed:
      return "failed";
  }
  return "unknown";
}

std::string_view toString(SettledEvent::Request request) noexcept {
  switch (request) {
    case SettledEvent::Request::acquire:
      return "acquire";
    case SettledEvent::Request::release:
      return "release";
  }
  return "unknown";
}

std::string_view toString(SettledEvent::Outcome outcome) noexcept {
  switch (outcome) {
    case SettledEvent::Outcome::executed:
      return "executed";
    case SettledEvent::Outcome::undone:
      return "undone";
    case SettledEvent::Outcome::notExecuted:
      return "notExecuted";
    case SettledEvent::Outcome::unknown:
      break;
  }
  return "unknown";
}

std::string_view toString(TopBy order) noexcept {
  switch (order) {
    case TopBy::waited:
      return "waited";
    case TopBy::contended:
      return "contended";
    case TopBy::held:
      return "held";
  }
  return "unknown";
}

}  // namespace rlock
