// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::test {

/// A number in a file, read and written without any protection, so that increments are lost when
/// two holders of a lock overlap. Lives outside all processes: give each of them the same path.
/// One object may be used from several threads; that they do not overlap is what it checks.
class UnprotectedCounter {
 public:
  /// Opens the file, creating it with 0 when there is none.
  explicit UnprotectedCounter(const std::string& path);
  UnprotectedCounter(const UnprotectedCounter&) = delete;
  UnprotectedCounter& operator=(const UnprotectedCounter&) = delete;
  ~UnprotectedCounter();

  /// Reads, waits `pause` (the longer, the surer an overlap is noticed), writes the number plus
  /// one. Returns the number written.
  std::int64_t increment(std::chrono::microseconds pause = {});
  [[nodiscard]] std::int64_t value() const;

 private:
  int fd_ = -1;
  std::string path_;
};

/// A journal of critical sections in a file, shared by any number of processes and threads. Each
/// entry is one atomic append. Call enter() after acquiring and leave() before releasing: then the
/// order of the lines is the order of the sections, whatever the clocks say.
class OverlapDetector {
 public:
  struct Result {
    std::size_t sections = 0;    ///< entered
    std::size_t unfinished = 0;  ///< entered, neither left nor abandoned
    std::vector<std::string> violations;

    [[nodiscard]] bool ok() const { return violations.empty(); }
    [[nodiscard]] std::string describe() const;
  };

  /// Opens or creates the journal.
  explicit OverlapDetector(const std::string& path);
  OverlapDetector(const OverlapDetector&) = delete;
  OverlapDetector& operator=(const OverlapDetector&) = delete;
  ~OverlapDetector();

  /// `ownerTag` names the holder; it must not be used by two holders at once. Spaces and line ends
  /// in it become '_'.
  void enter(std::string_view ownerTag);
  /// Sections entered this way may overlap each other, but no exclusive one.
  void enterShared(std::string_view ownerTag);
  void leave(std::string_view ownerTag);
  /// Ends the section of a holder that was killed, as of now. Call it as soon as the process is
  /// known to be dead; does nothing when that holder was in no section.
  void abandon(std::string_view ownerTag);

  /// Reads the whole journal. At most `limit` exclusive sections may be open at once.
  [[nodiscard]] Result verify(std::size_t limit = 1) const;

 private:
  void append(char kind, std::string_view ownerTag);

  int fd_ = -1;
  std::string path_;
};

}  // namespace rlock::test
