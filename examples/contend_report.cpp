// SPDX-License-Identifier: Apache-2.0
#include "contend_report.hpp"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <ostream>
#include <set>
#include <sstream>
#include <string_view>

namespace contend {

namespace {

struct Visit {
  Entry entry;
  int worker = 0;
};

std::string fixed(double value, int digits) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(digits) << value;
  return text.str();
}

std::string milliseconds(Nanoseconds time) {
  const double value = static_cast<double>(time) / 1e6;
  return fixed(value, value < 10 ? 2 : 0) + " ms";
}

Nanoseconds percentile(const std::vector<Nanoseconds>& sorted, double part) {
  const double rank = std::ceil(part * static_cast<double>(sorted.size()));
  return sorted[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

class Table {
 public:
  explicit Table(std::ostream& out) : out_(out) {}

  void row(std::string_view name, std::string_view value, std::string_view note = {}) {
    out_ << "  " << std::left << std::setw(kNameWidth) << name << std::right
         << std::setw(kValueWidth) << value;
    if (!note.empty()) {
      out_ << "  " << note;
    }
    out_ << '\n';
  }
  void rule() { out_ << "  " << std::string(kNameWidth + kValueWidth, '-') << '\n'; }

 private:
  static constexpr int kNameWidth = 26;
  static constexpr int kValueWidth = 12;

  std::ostream& out_;
};

}  // namespace

Findings evaluate(const Journal& journal, const std::vector<WorkerRecord>& workers) {
  Findings findings;
  findings.counter = journal.readCounter();

  std::vector<Visit> visits;
  std::set<std::uint64_t> overwritten;
  for (const WorkerRecord& worker : workers) {
    const auto entries = journal.entries(worker.number);
    findings.acquisitions.push_back(entries.size() + (worker.killed ? 1 : 0));
    findings.total += findings.acquisitions.back();
    for (const Entry& entry : entries) {
      visits.push_back({entry, worker.number});
      if (entry.wrote != 0) {
        ++findings.completed;
        overwritten.insert(entry.value);
      } else {
        ++findings.withheld;
      }
    }
  }

  // A process that ended inside leaves open whether it had written. If it had, nobody after it can
  // have read the value that it read.
  for (const WorkerRecord& worker : workers) {
    const Slot& slot = journal.slot(worker.number);
    if (worker.endedEarly && slot.phase == Phase::inside) {
      const std::uint64_t value = slot.value;
      if (!worker.killed && findings.counter > value && !overwritten.contains(value)) {
        ++findings.completed;
      } else {
        ++findings.cutOff;
      }
    }
  }
  findings.lost = static_cast<std::int64_t>(findings.completed - findings.counter);

  std::sort(visits.begin(), visits.end(), [](const Visit& a, const Visit& b) {
    return a.entry.enteredAt < b.entry.enteredAt;
  });
  const auto someoneEnded = [&workers](Nanoseconds from, Nanoseconds to) {
    return std::any_of(workers.begin(), workers.end(), [&](const WorkerRecord& worker) {
      return worker.endedEarly && *worker.endedEarly >= from && *worker.endedEarly <= to;
    });
  };
  Nanoseconds lastReleased = 0;
  for (std::size_t i = 0; i < visits.size(); ++i) {
    const Entry& entry = visits[i].entry;
    if (entry.enteredAt < lastReleased) {
      ++findings.overlaps;
    } else if (i > 0 && entry.askedAt < lastReleased && visits[i].worker != visits[i - 1].worker &&
               !someoneEnded(lastReleased, entry.enteredAt)) {
      findings.handOffs.push_back(entry.enteredAt - lastReleased);
    }
    lastReleased = std::max(lastReleased, entry.releasedAt);
  }
  std::sort(findings.handOffs.begin(), findings.handOffs.end());

  for (const WorkerRecord& worker : workers) {
    if (worker.killed) {
      const auto next = std::find_if(visits.begin(), visits.end(), [&](const Visit& visit) {
        return visit.entry.enteredAt > *worker.endedEarly;
      });
      if (next != visits.end()) {
        findings.takeover = next->entry.enteredAt - *worker.endedEarly;
      }
    }
  }
  return findings;
}

void print(std::ostream& out,
           const Findings& findings,
           const std::vector<WorkerRecord>& workers,
           const Circumstances& circumstances) {
  Table table(out);
  const auto since = [&](Nanoseconds time) {
    return fixed(static_cast<double>(time - circumstances.startedAt) / 1e9, 2) + " s";
  };

  out << '\n';
  table.row("process", "acquisitions");
  table.rule();
  for (std::size_t i = 0; i < workers.size(); ++i) {
    const WorkerRecord& worker = workers[i];
    std::string note;
    if (worker.replaces != 0) {
      note = "started in place of worker " + std::to_string(worker.replaces);
    }
    if (worker.endedEarly) {
      note += (note.empty() ? "" : ", ") + worker.ending + " at " + since(*worker.endedEarly);
    }
    table.row(
        "worker " + std::to_string(worker.number) + " (pid " + std::to_string(worker.pid) + ")",
        grouped(findings.acquisitions[i]),
        note);
  }
  table.rule();
  const double rate = static_cast<double>(findings.total) / std::max(circumstances.seconds, 0.001);
  table.row("together",
            grouped(findings.total),
            grouped(static_cast<std::uint64_t>(rate)) + " per second");

  out << '\n';
  table.row("completed increments", grouped(findings.completed));
  if (findings.cutOff > 0) {
    table.row("cut off before the write", grouped(findings.cutOff), "by the end of the process");
  }
  if (findings.withheld > 0) {
    table.row(
        "not written", grouped(findings.withheld), "the hold was lost first, and the process knew");
  }
  table.row("counter in the file", grouped(findings.counter));
  table.row("lost updates",
            findings.lost < 0 ? "-" + grouped(static_cast<std::uint64_t>(-findings.lost))
                              : grouped(static_cast<std::uint64_t>(findings.lost)),
            findings.lost == 0      ? ""
            : circumstances.useLock ? "THE LOCK FAILED"
                                    : "there was no lock");
  table.row("two inside at once", grouped(findings.overlaps));

  out << '\n';
  if (!findings.handOffs.empty()) {
    table.row("hand-offs to a waiter",
              grouped(findings.handOffs.size()),
              "from one process' release to the next one's entry:");
    table.row("  p50", milliseconds(percentile(findings.handOffs, 0.50)));
    table.row("  p90", milliseconds(percentile(findings.handOffs, 0.90)));
    table.row("  p99", milliseconds(percentile(findings.handOffs, 0.99)));
    table.row("  longest", milliseconds(findings.handOffs.back()));
  }
  if (findings.takeover) {
    table.row(
        "takeover after the kill",
        milliseconds(*findings.takeover),
        "a dead holder's lease of " + milliseconds(circumstances.lease) + " has to end first");
  }
  out << std::flush;
}

std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t i = text.size(); i > 3; i -= 3) {
    text.insert(i - 3, 1, ',');
  }
  return text;
}

}  // namespace contend
