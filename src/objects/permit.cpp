// SPDX-License-Identifier: Apache-2.0
#include <rlock/permit.hpp>

#include <utility>

namespace rlock {

Permit::Permit(Lease lease, std::string id) noexcept
    : Lease(std::move(lease)), id_(std::move(id)) {}

Permit::Permit(Permit&& other) noexcept {
  swap(other);
}

Permit& Permit::operator=(Permit&& other) noexcept {
  if (this != &other) {
    Permit old(std::move(*this));
    swap(other);
  }
  return *this;
}

void Permit::swap(Permit& other) noexcept {
  Lease::swap(static_cast<Lease&>(other));
  id_.swap(other.id_);
}

}  // namespace rlock
