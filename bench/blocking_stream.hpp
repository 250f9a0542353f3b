// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "baseline.hpp"
#include "server.hpp"
#include <rlock/options.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::bench {

/// A blocking connection of its own, plain or encrypted, that writes one command and reads one
/// reply: what encryption costs a client that does nothing besides. hiredis of Debian 12 has no
/// TLS, so that only its formatter and its reader are used. Errors are exceptions.
class BlockingStream {
 public:
  /// @param options  with TLS if `options.tls` says so
  explicit BlockingStream(const Options& options);
  BlockingStream(const BlockingStream&) = delete;
  BlockingStream& operator=(const BlockingStream&) = delete;
  ~BlockingStream();

  ReplyPtr command(const std::vector<std::string_view>& words);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

/// One lock by rlock's scripts over such a connection.
class BlockingStreamLock {
 public:
  BlockingStreamLock(const Options& options, const Scripts& scripts, const std::string& name);

  /// Throws when the lock is not free.
  void lock();
  /// Throws when it was not held.
  void unlock();

 private:
  const Scripts& scripts_;
  const std::string name_;
  const std::string channel_;
  BlockingStream stream_;
};

}  // namespace rlock::bench
