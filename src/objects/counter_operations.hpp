// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "objects/operations.hpp"
#include <rlock/detail/engine/parse_reply.hpp>
#include <rlock/detail/engine/scripted_object.hpp>
#include <rlock/detail/executor/counter_scripts.hpp>
#include <rlock/duration.hpp>
#include <rlock/error.hpp>
#include <rlock/operation.hpp>
#include <rlock/owner.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace rlock::detail {

/// An operation whose result is known without asking the server.
template <class T>
Operation<T> known(std::shared_ptr<const ScriptedObject> object, Result<T> result) {
  return makeOperation<T>(
      [object, result]() -> Result<T> {
        if (auto why = object->engine().refuse(false)) {
          return object->describe(std::move(*why));
        }
        return result;
      },
      [object, result](UniqueFunction<void(Result<T>)> handler) mutable {
        auto why = object->engine().refuse(false);
        object->engine().callbacks().reject(
            [handler = std::move(handler),
             result = why ? Result<T>(object->describe(std::move(*why))) : result]() mutable {
              handler(std::move(result));
            });
      });
}

/// An operation that is refused without asking the server.
template <class T>
Operation<T> refused(const std::shared_ptr<const ScriptedObject>& object, std::string_view why) {
  return known<T>(object, object->describe(Error(Errc::invalidArgument, why)));
}

/// An operation of one call that may be repeated.
/// @param compose  `void(Call&)`
/// @param parse    `std::optional<From>(const Reply&)`
/// @param convert  `Result<T>(Result<From>)`
template <class T, class From, class Compose, class Parse, class Convert>
Operation<T> asking(std::shared_ptr<const ScriptedObject> object,
                    Compose compose,
                    Parse parse,
                    Convert convert) {
  const auto fill = [compose](Call& call, const LockScripts&, std::string_view) { compose(call); };
  return operation<T, From>([object, fill, parse] { return object->ask<From>({}, fill, parse); },
                            [object, fill, parse](UniqueFunction<void(Result<From>)> handler) {
                              object->askAsync<From>({}, std::move(handler), fill, parse);
                            },
                            convert);
}

/// An operation of one call of a counter, answered by yes or no.
/// @param compose  `void(const CounterScripts&, Call&)`
template <class Counter, class Compose>
Operation<bool> askingYesNo(const std::shared_ptr<const Counter>& counter, Compose compose) {
  return asking<bool, bool>(
      counter,
      [scripts = counter->counter(), compose](Call& call) { compose(*scripts, call); },
      parseYesNo,
      same<bool>);
}

/// Gives a counter its value, if it has none.
/// @param life  zero: for ever
template <class Counter>
Operation<bool> settingOnce(const std::shared_ptr<const Counter>& counter,
                            std::int64_t value,
                            std::chrono::milliseconds life) {
  return askingYesNo(counter, [value, life](const CounterScripts& scripts, Call& call) {
    scripts.composeTrySet(call, value, life);
  });
}

template <class Counter>
Operation<bool> removing(const std::shared_ptr<const Counter>& counter) {
  return askingYesNo(
      counter, [](const CounterScripts& scripts, Call& call) { scripts.composeRemove(call); });
}

/// An operation that waits.
/// @param scripts  `std::shared_ptr<const LockScripts>()`, makes those of this acquisition
/// @param undo     makes what OperationBody::undo() returns
template <class T, class MakeScripts, class Undo = NothingToUndo>
Operation<T> waiting(std::shared_ptr<const ScriptedObject> object,
                     MakeScripts scripts,
                     Duration wait,
                     std::stop_token stop = {},
                     Undo undo = {}) {
  using Acquired = ScriptedObject::Acquired;
  AcquireParams params;
  params.wait = wait;
  params.stop = std::move(stop);
  // The permits belong to nobody, so this call must not queue behind other calls of the same
  // thread: it gets an owner of its own.
  params.owner = newOwner();
  return stoppable<T, Acquired>(
      std::move(params),
      [object, scripts](AcquireParams&& given) {
        return object->acquire(scripts(), std::move(given));
      },
      [object, scripts](AcquireParams&& given, UniqueFunction<void(Result<Acquired>)> handler) {
        object->acquireAsync(scripts(), std::move(given), std::move(handler));
      },
      [](const Result<Acquired>& result) -> Result<T> {
        if (!result.has_value()) {
          return result.error();
        }
        if constexpr (std::is_void_v<T>) {
          if (!result->has_value()) {
            return Error(Errc::timedOut, "the wait ended with nothing");
          }
          return {};
        } else {
          return result->has_value();
        }
      },
      std::move(undo));
}

}  // namespace rlock::detail
