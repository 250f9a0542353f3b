// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::bench {

/// Columns of text, aligned when printed: the first ones to the left, the others to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header, std::size_t leftColumns = 1)
      : rows_{std::move(header)}, leftColumns_(leftColumns) {}

  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  void row(std::vector<std::string> cells, const std::vector<std::string>& more) {
    cells.insert(cells.end(), more.begin(), more.end());
    row(std::move(cells));
  }
  void rule() { rows_.emplace_back(); }
  void print() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // an empty one is a line
  std::size_t leftColumns_;
};

/// Everything that was measured, for the JSON file.
class Report {
 public:
  using Figures = std::vector<std::pair<std::string, double>>;

  void fact(std::string name, std::string value);
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& facts() const {
    return facts_;
  }

  /// @param subject     what was measured, such as "rlock"
  /// @param conditions  under which, such as "threads=4"
  void add(std::string mode, std::string subject, std::string conditions, Figures figures);
  void writeJson(const std::string& path) const;

 private:
  struct Result {
    std::string mode;
    std::string subject;
    std::string conditions;
    Figures figures;
  };

  std::vector<std::pair<std::string, std::string>> facts_;
  std::vector<Result> results_;
};

void printHeading(std::string_view title, std::string_view explanation);
/// Says what goes on; only on a terminal, where the next output overwrites it.
void printProgress(std::string_view text);

// Numbers as the tables show them; "-" for what is not known (not finite).
std::string showCount(double value);                ///< 12,345
std::string showDecimal(double value, int digits);  ///< 1.23
std::string showRatio(double value);                ///< 1.23x

}  // namespace rlock::bench
