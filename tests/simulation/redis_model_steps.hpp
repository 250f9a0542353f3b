// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::sim {

using Random = std::mt19937_64;

/// One command, as it is sent to both servers.
struct ModelStep {
  std::vector<std::string> argv;
  /// Of the script that it executes; empty: a plain command.
  std::string script;
  /// Both servers are at their memory limit while it is executed.
  bool outOfMemory = false;
};

/// A random sequence of commands about a few names that share their keys, as clients of the library
/// compose them: owners that acquire, release, renew, reconcile and force in any order, with leases
/// that end during the sequence and others that do not; requests that come twice; and now and then
/// something that stands in the way.
class ModelStepMaker {
 public:
  virtual ~ModelStepMaker() = default;
  virtual ModelStep next() = 0;
};

/// How many kinds of sequences there are: plain locks, fenced locks, and so on.
std::size_t stepMakerCount();
std::string_view stepMakerName(std::size_t kind);
std::unique_ptr<ModelStepMaker> makeStepMaker(std::size_t kind, std::uint64_t seed);

}  // namespace rlock::sim
