// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/link_settings.hpp"
#include <rlock/detail/net/sentinel_list.hpp>

#include <utility>

namespace rlock::detail::net {

/// All that the connections of one client share about its Sentinels.
///
/// **Thread safety:** loop thread only.
struct SentinelAccess {
  explicit SentinelAccess(LinkSettings toSentinels)
      : settings(std::move(toSentinels)), list(settings.endpoints) {}

  /// Of a connection to a Sentinel: endpoints, credentials, TLS.
  const LinkSettings settings;
  SentinelList list;
};

}  // namespace rlock::detail::net
