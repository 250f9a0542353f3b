// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/export.hpp>
#include <rlock/lease.hpp>

#include <string>

namespace rlock {

/// One permit of a PermitExpirableSemaphore as an object: a Lease with the permit's id.
///
/// **Thread safety:** observers from any thread; move, assignment and release() one thread at a
/// time.
///
/// The permit is kept until the object is destroyed, released or overwritten, or the hold is lost;
/// the watchdog renews it unless it was taken with a lease of its own.
// Exported member by member, as Lease is.
class [[nodiscard]] Permit : public Lease {
 public:
  Permit() noexcept = default;
  /// For PermitExpirableSemaphore, which takes the permit.
  RLOCK_EXPORT Permit(Lease lease, std::string id) noexcept;
  ///@{
  /// `other` is empty afterwards. The permit that the target had is released in the background.
  RLOCK_EXPORT Permit(Permit&& other) noexcept;
  RLOCK_EXPORT Permit& operator=(Permit&& other) noexcept;
  ///@}
  Permit(const Permit&) = delete;
  Permit& operator=(const Permit&) = delete;
  ~Permit() = default;

  ///@{
  /// Exchanges the permits. With a Lease that is no Permit it does not compile: the id would stay.
  RLOCK_EXPORT void swap(Permit& other) noexcept;
  void swap(Lease& other) = delete;
  ///@}

  /// 32 lower-case hexadecimal characters, as PermitExpirableSemaphore takes and gives them. Stays
  /// after release(); empty for a Permit that is default-constructed or moved from.
  [[nodiscard]] const std::string& id() const noexcept { return id_; }

 private:
  std::string id_;
};

///@{
/// Exchanges the permits; a permit and a lease of another kind cannot be exchanged.
inline void swap(Permit& a, Permit& b) noexcept {
  a.swap(b);
}
void swap(Permit& a, Lease& b) = delete;
void swap(Lease& a, Permit& b) = delete;
///@}

}  // namespace rlock
