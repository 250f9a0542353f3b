// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/error.hpp>

#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace rlock {

template <class T>
class Result;

namespace detail {

template <class T>
inline constexpr bool isResult = false;
template <class T>
inline constexpr bool isResult<Result<T>> = true;

template <class U>
concept ResultFailure =
    std::is_same_v<std::remove_cvref_t<U>, Error> || std::is_same_v<std::remove_cvref_t<U>, Errc>;

template <class U, class T>
concept ResultValue =
    !isResult<std::remove_cvref_t<U>> && !ResultFailure<U> && std::is_constructible_v<T, U&&>;

}  // namespace detail

/// A value or the Error that prevented it. The member names are those of `std::expected`.
///
/// **Thread safety:** One thread at a time.
///
/// @tparam T  any movable type, or void
template <class T>
class [[nodiscard]] Result {
  static_assert(std::is_object_v<T> && !std::is_array_v<T>, "Result holds a movable object type");
  static_assert(!detail::ResultFailure<T>, "the value must be distinguishable from the error");

 public:
  using value_type = T;      ///< as in `std::expected`
  using error_type = Error;  ///< as in `std::expected`

  // NOLINTBEGIN(google-explicit-constructor, bugprone-forwarding-reference-overload): functions
  // return values and errors as they are; the concept leaves copies and moves alone.

  /// Made from anything that T can be made from; implicit where T's own conversion is.
  template <detail::ResultValue<T> U = T>
  explicit(!std::is_convertible_v<U&&, T>)
      Result(U&& value) noexcept(std::is_nothrow_constructible_v<T, U&&>)
      : state_(std::in_place_index<0>, std::forward<U>(value)) {}

  ///@{
  /// A failure; from an Errc with its standard sentence.
  Result(Error error) noexcept : state_(std::in_place_index<1>, std::move(error)) {}
  Result(Errc errc) : state_(std::in_place_index<1>, errc) {}
  ///@}
  // NOLINTEND(google-explicit-constructor, bugprone-forwarding-reference-overload)

  ///@{
  /// Whether there is a value and no error.
  bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }
  ///@}

  ///@{
  /// The value.
  ///
  /// @throws rlock::Error  the error that is held instead
  T& value() & {
    throwIfError();
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    throwIfError();
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    throwIfError();
    return std::move(*std::get_if<0>(&state_));
  }
  ///@}

  /// The error; the behaviour is undefined when there is a value.
  const Error& error() const& noexcept { return *std::get_if<1>(&state_); }
  /// By value, so that `for (... : f().error().key())` does not dangle.
  Error error() && noexcept { return *std::get_if<1>(&state_); }

  ///@{
  /// The value, unchecked: the behaviour is undefined when there is an error.
  T& operator*() & noexcept { return *std::get_if<0>(&state_); }
  const T& operator*() const& noexcept { return *std::get_if<0>(&state_); }
  T&& operator*() && noexcept { return std::move(*std::get_if<0>(&state_)); }
  T* operator->() noexcept { return std::get_if<0>(&state_); }
  const T* operator->() const noexcept { return std::get_if<0>(&state_); }
  ///@}

  ///@{
  /// The value, or else `other`.
  template <class U>
  T value_or(U&& other) const& {
    return has_value() ? **this : static_cast<T>(std::forward<U>(other));
  }
  template <class U>
  T value_or(U&& other) && {
    return has_value() ? std::move(**this) : static_cast<T>(std::forward<U>(other));
  }
  ///@}

 private:
  void throwIfError() const {
    if (const Error* error = std::get_if<1>(&state_)) {
      detail::throwError(*error);
    }
  }

  std::variant<T, Error> state_;
};

/// Success, or the Error that prevented it.
template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;   ///< as in `std::expected`
  using error_type = Error;  ///< as in `std::expected`

  Result() noexcept = default;
  // NOLINTBEGIN(google-explicit-constructor): functions return errors as they are
  ///@{
  /// A failure; from an Errc with its standard sentence.
  Result(Error error) noexcept : error_(std::move(error)) {}
  Result(Errc errc) : error_(std::in_place, errc) {}
  ///@}
  // NOLINTEND(google-explicit-constructor)

  ///@{
  /// Whether there is a value and no error.
  bool has_value() const noexcept { return !error_.has_value(); }
  explicit operator bool() const noexcept { return has_value(); }
  ///@}

  /// Throws if this is a failure.
  ///
  /// @throws rlock::Error  the error that is held
  void value() const {
    if (error_) {
      detail::throwError(*error_);
    }
  }
  /// Does nothing; generic code may dereference any success.
  void operator*() const noexcept {}

  /// The error; the behaviour is undefined when there is none.
  const Error& error() const& noexcept { return *error_; }
  /// By value, as in the general template.
  Error error() && noexcept { return *error_; }

 private:
  std::optional<Error> error_;
};

}  // namespace rlock
