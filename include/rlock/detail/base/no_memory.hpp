// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/error.hpp>
#include <rlock/result.hpp>

#include <new>

namespace rlock::detail {

/// The error of a call that there is no memory for. It is made by the first call of this function,
/// which may throw std::bad_alloc; from then on nothing can fail.
inline const Error& noMemory() {
  // Never destroyed: a client may outlive what ends at the process' exit.
  static const Error& made =
      *new Error(Errc::overloaded, "this process has no memory for the request");
  return made;
}

/// The answer of a call in the background, whose handler has to be called whatever there is no
/// memory for.
/// @param answer  `Result<T>()`
template <class T, class Answer>
Result<T> answerOrNoMemory(Answer answer) {
  try {
    return answer();
  } catch (const std::bad_alloc&) {
    return noMemory();
  }
}

/// Takes a step that the next ones do not depend on. False: there was no memory for it.
template <class Step>
bool ifThereIsMemory(Step step) {
  try {
    step();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

/// Takes a step that must be taken: once more, if there was no memory for it, for most often the
/// next allocation succeeds. False: there was none again.
template <class Step>
bool ifThereIsMemorySoon(Step step) {
  return ifThereIsMemory(step) || ifThereIsMemory(step);
}

}  // namespace rlock::detail
