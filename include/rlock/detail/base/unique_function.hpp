// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace rlock::detail {

template <class Signature>
class UniqueFunction;

template <class T>
inline constexpr bool isUniqueFunction = false;
template <class Signature>
inline constexpr bool isUniqueFunction<UniqueFunction<Signature>> = true;

template <class T>
inline constexpr bool isStdFunction = false;
template <class Signature>
inline constexpr bool isStdFunction<std::function<Signature>> = true;

template <class F, class R, class... Args>
concept UniqueFunctionTarget = !isUniqueFunction<std::remove_cvref_t<F>> &&
                               std::is_invocable_r_v<R, std::decay_t<F>&, Args...>;

/// A callable that can be moved but not copied, so it may own promises, leases and coroutines. It
/// stands in for `std::move_only_function`, which the oldest supported standard library lacks.
///
/// **Thread safety:** One thread at a time.
///
/// Callables of up to kCapacity bytes that move without throwing live inside the object; others
/// live on the heap. Calling an empty one throws `std::bad_function_call`. Invariant: manage_ is
/// null exactly when the function is empty, and invoke_ is always callable.
template <class R, class... Args>
class UniqueFunction<R(Args...)> {
 public:
  static constexpr std::size_t kCapacity = 48;

  UniqueFunction() noexcept = default;
  // NOLINTNEXTLINE(google-explicit-constructor): as std::function
  UniqueFunction(std::nullptr_t) noexcept {}

  template <UniqueFunctionTarget<R, Args...> F>
  // NOLINTNEXTLINE(google-explicit-constructor): as std::function
  UniqueFunction(F&& callable) {
    using Target = std::decay_t<F>;
    // This check is not part of the concept: callables with a constructor from UniqueFunction would
    // make it recursive.
    static_assert(std::is_constructible_v<Target, F>, "copy or move the callable in");
    if constexpr (std::is_pointer_v<Target> || std::is_member_pointer_v<Target> ||
                  isStdFunction<Target>) {
      if (!callable) {
        return;
      }
    }
    if constexpr (kFitsInside<Target>) {
      ::new (static_cast<void*>(storage_)) Target(std::forward<F>(callable));
      invoke_ = &invokeInside<Target>;
      manage_ = &manageInside<Target>;
    } else {
      ::new (static_cast<void*>(storage_)) Target*(new Target(std::forward<F>(callable)));
      invoke_ = &invokeOutside<Target>;
      manage_ = &manageOutside<Target>;
    }
  }

  UniqueFunction(const UniqueFunction&) = delete;
  UniqueFunction& operator=(const UniqueFunction&) = delete;

  UniqueFunction(UniqueFunction&& other) noexcept { takeFrom(other); }
  UniqueFunction& operator=(UniqueFunction&& other) noexcept {
    if (this != &other) {
      // The old target dies last, because its destructor may use this object again.
      UniqueFunction old(std::move(*this));
      takeFrom(other);
    }
    return *this;
  }
  UniqueFunction& operator=(std::nullptr_t) noexcept {
    UniqueFunction old(std::move(*this));
    return *this;
  }

  ~UniqueFunction() {
    if (manage_ != nullptr) {
      manage_(storage_, nullptr);
    }
  }

  explicit operator bool() const noexcept { return manage_ != nullptr; }
  friend bool operator==(const UniqueFunction& function, std::nullptr_t) noexcept {
    return !function;
  }

  R operator()(Args... args) { return invoke_(storage_, std::forward<Args>(args)...); }

 private:
  using Invoke = R (*)(void*, Args&&...);
  /// Moves the target to the second address, or destroys it when that is null.
  using Manage = void (*)(void*, void*) noexcept;

  template <class Target>
  static constexpr bool kFitsInside =
      sizeof(Target) <= kCapacity &&
      alignof(Target) <= alignof(std::max_align_t) && std::is_nothrow_move_constructible_v<Target>;

  template <class Target>
  static Target* inside(void* storage) noexcept {
    return std::launder(static_cast<Target*>(storage));
  }

  template <class Target>
  static R call(Target& target, Args&&... args) {
    if constexpr (std::is_void_v<R>) {
      std::invoke(target, std::forward<Args>(args)...);
    } else {
      return std::invoke(target, std::forward<Args>(args)...);
    }
  }

  [[noreturn]] static R invokeEmpty(void*, Args&&...) { throw std::bad_function_call(); }

  template <class Target>
  static R invokeInside(void* storage, Args&&... args) {
    return call(*inside<Target>(storage), std::forward<Args>(args)...);
  }
  template <class Target>
  static R invokeOutside(void* storage, Args&&... args) {
    return call(**inside<Target*>(storage), std::forward<Args>(args)...);
  }

  template <class Target>
  static void manageInside(void* from, void* to) noexcept {
    Target* target = inside<Target>(from);
    if (to != nullptr) {
      ::new (to) Target(std::move(*target));
    }
    std::destroy_at(target);
  }
  template <class Target>
  static void manageOutside(void* from, void* to) noexcept {
    Target* target = *inside<Target*>(from);
    if (to != nullptr) {
      ::new (to) Target*(target);
    } else {
      delete target;
    }
  }

  void takeFrom(UniqueFunction& other) noexcept {
    if (other.manage_ != nullptr) {
      other.manage_(other.storage_, storage_);
    }
    invoke_ = std::exchange(other.invoke_, &invokeEmpty);
    manage_ = std::exchange(other.manage_, nullptr);
  }

  alignas(std::max_align_t) std::byte storage_[kCapacity];
  Invoke invoke_ = &invokeEmpty;
  Manage manage_ = nullptr;
};

}  // namespace rlock::detail
