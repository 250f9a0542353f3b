// SPDX-License-Identifier: Apache-2.0
#include "support/unprotected_counter.hpp"

#include "support/host_report.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

namespace rlock::test {

namespace {

constexpr std::size_t kDigits = 20;

int openFile(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) {
    throw std::system_error(errno, std::generic_category(), path);
  }
  return fd;
}

std::int64_t readNumber(int fd, const std::string& path) {
  char text[kDigits + 1] = {};
  const ssize_t n = ::pread(fd, text, kDigits, 0);
  if (n < 0) {
    throw std::system_error(errno, std::generic_category(), path);
  }
  std::int64_t number = 0;
  if (n > 0) {
    const std::string_view padded(text, static_cast<std::size_t>(n));
    const std::string_view digits =
        padded.substr(std::min(padded.find_first_not_of(' '), padded.size()));
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
  }
  return number;
}

std::int64_t monotonicNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

UnprotectedCounter::UnprotectedCounter(const std::string& path)
    : fd_(openFile(path, O_RDWR)), path_(path) {
  noteSafetyCheck();
}

UnprotectedCounter::~UnprotectedCounter() {
  ::close(fd_);
}

std::int64_t UnprotectedCounter::increment(std::chrono::microseconds pause) {
  const std::int64_t next = readNumber(fd_, path_) + 1;
  if (pause.count() > 0) {
    std::this_thread::sleep_for(pause);
  }
  char text[kDigits + 1];
  // A fixed width, so that writing never leaves digits of a longer number behind.
  std::snprintf(text, sizeof text, "%20lld", static_cast<long long>(next));
  if (::pwrite(fd_, text, kDigits, 0) != static_cast<ssize_t>(kDigits)) {
    throw std::system_error(errno, std::generic_category(), path_);
  }
  return next;
}

std::int64_t UnprotectedCounter::value() const {
  return readNumber(fd_, path_);
}

std::string OverlapDetector::Result::describe() const {
  std::ostringstream out;
  out << sections << " sections, " << unfinished << " unfinished, " << violations.size()
      << " violations";
  for (const std::string& violation : violations) {
    out << "\n  " << violation;
  }
  return out.str();
}

OverlapDetector::OverlapDetector(const std::string& path)
    : fd_(openFile(path, O_WRONLY | O_APPEND)), path_(path) {
  noteSafetyCheck();
}

OverlapDetector::~OverlapDetector() {
  ::close(fd_);
}

void OverlapDetector::append(char kind, std::string_view ownerTag) {
  std::string line(1, kind);
  line += ' ';
  for (const char character : ownerTag) {
    line += character == ' ' || character == '\n' || character == '\r' ? '_' : character;
  }
  line += ' ' + std::to_string(monotonicNs()) + '\n';
  if (::write(fd_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    throw std::system_error(errno, std::generic_category(), path_);
  }
}

void OverlapDetector::enter(std::string_view ownerTag) {
  append('E', ownerTag);
}
void OverlapDetector::enterShared(std::string_view ownerTag) {
  append('S', ownerTag);
}
void OverlapDetector::leave(std::string_view ownerTag) {
  append('L', ownerTag);
}
void OverlapDetector::abandon(std::string_view ownerTag) {
  append('A', ownerTag);
}

OverlapDetector::Result OverlapDetector::verify(std::size_t limit) const {
  struct Entry {
    char kind = '\0';
    std::string tag;
    std::int64_t time = 0;
  };
  struct Open {
    bool shared = false;
    std::size_t line = 0;
    /// When its holder was known to be dead; the line that says so may come late.
    std::int64_t abandonedAt = std::numeric_limits<std::int64_t>::max();
  };
  std::vector<Entry> entries;
  std::ifstream file(path_);
  Entry read;
  while (file >> read.kind >> read.tag >> read.time) {
    entries.push_back(read);
  }

  Result result;
  std::map<std::string, Open> open;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    const std::string where = "line " + std::to_string(i + 1) + ": ";
    if (entry.kind == 'L') {
      if (open.erase(entry.tag) == 0) {
        result.violations.push_back(where + entry.tag + " leaves without having entered");
      }
      continue;
    }
    if (entry.kind == 'A') {
      open.erase(entry.tag);
      continue;
    }
    ++result.sections;
    Open section;
    section.shared = entry.kind == 'S';
    section.line = i + 1;
    for (std::size_t j = i + 1; j < entries.size(); ++j) {
      if (entries[j].tag == entry.tag) {
        if (entries[j].kind == 'A') {
          section.abandonedAt = entries[j].time;
        }
        break;
      }
    }
    std::erase_if(open, [&](const auto& item) { return item.second.abandonedAt <= entry.time; });
    if (open.contains(entry.tag)) {
      result.violations.push_back(where + entry.tag + " enters twice");
    }
    std::size_t exclusive = 0;
    std::size_t shared = 0;
    std::string others;
    for (const auto& [tag, other] : open) {
      (other.shared ? shared : exclusive) += 1;
      others.append(" ").append(tag).append(" (since line ");
      others.append(std::to_string(other.line)).append(")");
    }
    const bool overlap = section.shared ? exclusive > 0 : shared > 0 || exclusive + 1 > limit;
    if (overlap) {
      std::string violation = where;
      violation.append(entry.tag).append(" enters while inside:").append(others);
      result.violations.push_back(std::move(violation));
    }
    open[entry.tag] = section;
  }
  result.unfinished = open.size();
  return result;
}

}  // namespace rlock::test
