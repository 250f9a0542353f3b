// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/child_process.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::test::interop {

/// The side whose locks a process uses.
enum class Side { java, cpp };

inline constexpr Side kSides[] = {Side::java, Side::cpp};

constexpr Side other(Side side) {
  return side == Side::java ? Side::cpp : Side::java;
}
/// "java" or "cpp".
const char* toString(Side side);
std::ostream& operator<<(std::ostream& out, Side side);

/// The answer of a peer to one command. Times are of the machine's monotonic clock, which all
/// processes share, so that those of two peers may be compared.
struct Answer {
  std::chrono::nanoseconds begin{};
  std::chrono::nanoseconds end{};
  std::string value;    ///< as text: true, 3, null, ...
  std::string error;    ///< empty: none; else the name of an Errc, or of a Java exception
  std::string message;  ///< of the error

  [[nodiscard]] bool ok() const { return error.empty(); }
  /// The value or the error's name: for comparisons.
  [[nodiscard]] const std::string& text() const { return ok() ? value : error; }
  [[nodiscard]] std::int64_t number() const;
};
std::ostream& operator<<(std::ostream& out, const Answer& answer);

/// A command that may still be going on.
struct Call {
  std::int64_t id = 0;
};

/// A process that uses locks on command, Redisson's or rlock's: the protocol is in README.md. One
/// thread at a time. Every method throws std::runtime_error when the process says nothing in time.
class Peer {
 public:
  /// @param redisson  for Side::java: the version, which build_java.sh has built
  Peer(Side side, const std::string& redisson);

  [[nodiscard]] Side side() const { return side_; }
  /// The name that the process gives itself, such as "Redisson 4.7.0".
  [[nodiscard]] const std::string& about() const { return about_; }
  [[nodiscard]] ChildProcess& process() { return process_; }

  struct Tuning {
    std::chrono::milliseconds watchdog{30'000};
    std::chrono::milliseconds safetyPoll{1'000};  ///< rlock only
    std::chrono::milliseconds fairWait{0};        ///< 0: the default of the side
    std::chrono::milliseconds commandTimeout{0};  ///< the same; for a reply
    /// Redisson only: it takes an acquisition back that no replica has.
    bool checkReplicas = true;
  };
  /// Opens client number `client`; returns its id.
  std::string open(int client, const std::string& uri, const Tuning& tuning);
  /// The owner field that this owner has in this client.
  std::string ownerField(int client, int owner);

  /// Owners are threads: a command waits for what its owner has been told before.
  Call start(int client,
             int owner,
             std::string_view verb,
             std::string_view kind,
             std::string_view name,
             const std::vector<std::string>& arguments = {});
  Answer finish(Call call, std::chrono::milliseconds deadline = kLongest);
  /// Whether the answer is there.
  bool finished(Call call);
  /// start() and finish().
  Answer ask(int client,
             int owner,
             std::string_view verb,
             std::string_view kind,
             std::string_view name,
             const std::vector<std::string>& arguments = {});

  static constexpr std::chrono::milliseconds kLongest{60'000};

 private:
  bool readAnswer(std::chrono::milliseconds deadline);

  Side side_;
  ChildProcess process_;
  std::int64_t lastId_ = 0;
  std::map<std::int64_t, Answer> answers_;
  std::string about_;
};

/// The fields of one flat JSON object, strings unescaped and everything else as it stands there.
/// @throws std::runtime_error when it is something else
std::map<std::string, std::string> parseFlatJson(std::string_view text);

}  // namespace rlock::test::interop
