// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/engine/call_runner.hpp>

#include <new>
#include <optional>
#include <utility>

namespace rlock::detail {

/// A call with an answer of its own sort: for the caller that waits in run(), or for a handler.
template <class T>
class Task : public CallRunner {
 public:
  using Handler = UniqueFunction<void(Result<T>)>;

  /// Runs on the calling thread.
  /// @throws std::bad_alloc  then nothing has changed, or it is undone or completed in the
  /// background
  Result<T> run();
  /// Runs on the loop thread.
  /// @throws std::bad_alloc  then the handler is not called
  void startInBackground(Handler handler);

 protected:
  using CallRunner::CallRunner;

  /// A handler that was never called, because the loop ended first, is called now.
  ~Task() override;

  /// The answer, which does not change any more. Asked for once.
  virtual Result<T> takeResult() = 0;

  /// Tells whoever waits. At most once. Not for a thread that has its answer in its hand.
  void answerCaller() final;

  Handler handler_;

 private:
  std::optional<Result<T>> result_;
};

template <class T>
Result<T> Task<T>::run() {
  bool answersItself = false;
  try {
    answersItself = runHere();
  } catch (const std::bad_alloc&) {
    giveUp();
    throw;
  }
  // A grant takes no memory to be told, and of an error without memory for its text nothing is
  // left to be done here: a request may still be under way.
  return answersItself ? takeResult() : std::move(*result_);
}

template <class T>
void Task<T>::startInBackground(Handler handler) {
  handler_ = std::move(handler);
  try {
    startOnLoop();
  } catch (const std::bad_alloc&) {
    handler_ = nullptr;
    throw;
  }
}

template <class T>
Task<T>::~Task() {
  if (background_ && handler_) {
    engine_->callbacks().reject(
        [handler = std::move(handler_), error = unansweredError()]() mutable {
          handler(Result<T>(std::move(error)));
        },
        handlerPlace_);
  }
}

template <class T>
void Task<T>::answerCaller() {
  try {
    result_.emplace(takeResult());
  } catch (const std::bad_alloc&) {
    // An error that there is no memory to describe.
    result_.emplace(memoryError());
  }
  if (!background_) {
    signals_.give(Signals::kAnswered);
    return;
  }
  // Only the task is passed on, so that this takes no memory.
  engine_->callbacks().deliver(
      [self = IntrusivePtr<Task>(this)] {
        Handler handler = std::move(self->handler_);
        handler(std::move(*self->result_));
      },
      handlerPlace_);
}

}  // namespace rlock::detail
