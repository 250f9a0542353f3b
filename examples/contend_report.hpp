// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contend_journal.hpp"

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace contend {

/// A worker as the coordinator saw it.
struct WorkerRecord {
  int number = 0;
  pid_t pid = -1;
  int replaces = 0;  ///< the killed worker it stands in for; 0: none
  bool running = true;
  bool killed = false;                    ///< by the coordinator, between read and write
  std::optional<Nanoseconds> endedEarly;  ///< killed, or ended when nobody had told it to
  std::string ending;                     ///< how it ended early
};

struct Findings {
  std::vector<std::uint64_t> acquisitions;  ///< of each worker
  std::uint64_t total = 0;
  std::uint64_t counter = 0;
  std::uint64_t completed = 0;        ///< increments
  std::uint64_t cutOff = 0;           ///< begun by a worker that was killed before it wrote
  std::uint64_t withheld = 0;         ///< holds lost before the write, which therefore was not made
  std::int64_t lost = 0;              ///< completed increments that the counter does not show
  std::uint64_t overlaps = 0;         ///< holds that began before the one before had ended
  std::vector<Nanoseconds> handOffs;  ///< from a release to the entry of a waiting process, sorted
  std::optional<Nanoseconds> takeover;  ///< from the kill to the next entry

  [[nodiscard]] bool exclusive() const { return lost == 0 && overlaps == 0; }
};

/// Reads the journals of workers that have all ended.
Findings evaluate(const Journal& journal, const std::vector<WorkerRecord>& workers);

struct Circumstances {
  double seconds = 0;  ///< how long the workers worked
  Nanoseconds startedAt = 0;
  Nanoseconds lease = 0;
  bool useLock = true;
};

void print(std::ostream& out,
           const Findings& findings,
           const std::vector<WorkerRecord>& workers,
           const Circumstances& circumstances);

/// 1234567 as 1,234,567.
std::string grouped(std::uint64_t number);

}  // namespace contend
