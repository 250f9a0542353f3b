// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/block_cache.hpp>
#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/operation.hpp>
#include <rlock/result.hpp>

#include <memory>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace rlock::detail {

/// Makes an operation of the two forms that a backend has of a call, and of a conversion of the
/// result.
/// @param run      `Result<From>()`, on the calling thread
/// @param start    `void(UniqueFunction<void(Result<From>)>)`, in the background
/// @param convert  `Result<T>(Result<From>)`
template <class T, class From, class Run, class Start, class Convert>
Operation<T> operation(Run run, Start start, Convert convert) {
  return makeOperation<T>(
      [run, convert]() mutable -> Result<T> { return convert(run()); },
      [start, convert](UniqueFunction<void(Result<T>)> handler) mutable {
        start([handler = std::move(handler), convert](Result<From> result) mutable {
          handler(answerOrNoMemory<T>([&] { return convert(std::move(result)); }));
        });
      });
}

inline std::stop_token& stopOf(AcquireParams& params) noexcept {
  return params.stop;
}

/// Of a call whose result gives back what it has, when it is dropped.
struct NothingToUndo {
  UniqueFunction<void()> operator()() const { return {}; }
};

/// The work of a call that a stop request ends.
template <class T, class From, class Params, class Run, class Start, class Convert, class Undo>
class StoppableBody final
    : public OperationBody<T>,
      public FromBlockCache<StoppableBody<T, From, Params, Run, Start, Convert, Undo>> {
 public:
  StoppableBody(Params&& params, Run run, Start start, Convert convert, Undo undo)
      : params_(std::move(params)),
        run_(std::move(run)),
        start_(std::move(start)),
        convert_(std::move(convert)),
        undo_(std::move(undo)) {}

  Result<T> run() override { return convert_(run_(std::move(params_))); }
  void start(UniqueFunction<void(Result<T>)> handler) override {
    start_(
        std::move(params_),
        [handler = std::move(handler), convert = std::move(convert_)](Result<From> result) mutable {
          handler(answerOrNoMemory<T>([&] { return convert(std::move(result)); }));
        });
  }
  std::stop_token* stop() noexcept override { return &stopOf(params_); }
  UniqueFunction<void()> undo() override { return undo_(); }

 private:
  Params params_;
  Run run_;
  Start start_;
  Convert convert_;
  [[no_unique_address]] Undo undo_;
};

/// As operation(), for a call whose parameters have a stop token.
/// @param params  what stopOf() finds the token in; the calls are handed it as an rvalue
/// @param run     `Result<From>(Params&&)`, on the calling thread
/// @param start   `void(Params&&, UniqueFunction<void(Result<From>)>)`, in the background
/// @param undo    makes what OperationBody::undo() returns
template <class T,
          class From,
          class Params,
          class Run,
          class Start,
          class Convert,
          class Undo = NothingToUndo>
Operation<T> stoppable(Params&& params, Run run, Start start, Convert convert, Undo undo = {}) {
  static_assert(!std::is_reference_v<Params>, "move the parameters in");
  using Body = StoppableBody<T, From, Params, Run, Start, Convert, Undo>;
  return Operation<T>(std::make_unique<Body>(std::forward<Params>(params),
                                             std::move(run),
                                             std::move(start),
                                             std::move(convert),
                                             std::move(undo)));
}

/// A conversion for operation() that leaves the result as it is.
template <class T>
Result<T> same(Result<T> result) {
  return result;
}

}  // namespace rlock::detail
