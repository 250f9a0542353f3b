// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <memory>
#include <system_error>
#include <unistd.h>

namespace rlock::bench {

namespace {

void clearProgress() {
  if (::isatty(STDERR_FILENO) == 1) {
    std::fputs("\r\x1b[K", stderr);
    std::fflush(stderr);
  }
}

std::string inQuotes(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : "null";
}

}  // namespace

void Table::print() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::size_t total = 0;
  for (const std::size_t width : widths) {
    total += width + 2;
  }
  clearProgress();
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += i < leftColumns_ ? fmt::format("  {:<{}}", row[i], widths[i])
                               : fmt::format("  {:>{}}", row[i], widths[i]);
    }
    if (row.empty()) {
      line += "  " + std::string(total - 2, '-');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  }
  std::fflush(stdout);
}

void Report::fact(std::string name, std::string value) {
  facts_.emplace_back(std::move(name), std::move(value));
}

void Report::add(std::string mode, std::string subject, std::string conditions, Figures figures) {
  results_.push_back(
      {std::move(mode), std::move(subject), std::move(conditions), std::move(figures)});
}

void Report::writeJson(const std::string& path) const {
  std::string text = "{\n  \"machine\": {";
  std::string_view separator = "\n";
  for (const auto& [name, value] : facts_) {
    text += fmt::format("{}    {}: {}", separator, inQuotes(name), inQuotes(value));
    separator = ",\n";
  }
  text += "\n  },\n  \"results\": [";
  separator = "\n";
  for (const Result& result : results_) {
    text += fmt::format("{}    {{\"mode\": {}, \"subject\": {}, \"conditions\": {}",
                        separator,
                        inQuotes(result.mode),
                        inQuotes(result.subject),
                        inQuotes(result.conditions));
    for (const auto& [name, value] : result.figures) {
      text += fmt::format(", {}: {}", inQuotes(name), number(value));
    }
    text += '}';
    separator = ",\n";
  }
  text += "\n  ]\n}\n";

  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "w"),
                                                             &std::fclose);
  if (!file || std::fwrite(text.data(), 1, text.size(), file.get()) != text.size()) {
    throw std::system_error(errno, std::generic_category(), path);
  }
}

void printHeading(std::string_view title, std::string_view explanation) {
  clearProgress();
  fmt::print("\n{}\n{}\n\n", title, explanation);
  std::fflush(stdout);
}

void printProgress(std::string_view text) {
  if (::isatty(STDERR_FILENO) == 1) {
    fmt::print(stderr, "\r\x1b[K{} ...", text);
    std::fflush(stderr);
  }
}

std::string showCount(double value) {
  if (!std::isfinite(value)) {
    return "-";
  }
  std::string text = fmt::format("{:.0f}", value);
  for (std::size_t i = text.size(); i > 3; i -= 3) {
    text.insert(i - 3, 1, ',');
  }
  return text;
}

std::string showDecimal(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}

std::string showRatio(double value) {
  return std::isfinite(value) ? fmt::format("{:.2f}x", value) : "-";
}

}  // namespace rlock::bench
