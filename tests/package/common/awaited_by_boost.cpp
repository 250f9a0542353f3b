// SPDX-License-Identifier: Apache-2.0
#include <rlock/boost_asio.hpp>
#include <rlock/rlock.hpp>

#include <boost/asio/use_future.hpp>

bool awaitedByBoost(rlock::RLock lock) {
  return rlock::useBoostAsio(lock.isLockedAsync(), boost::asio::use_future).get();
}
