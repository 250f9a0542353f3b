// SPDX-License-Identifier: Apache-2.0
#include "bench.hpp"
#include "heap_census.hpp"
#include "holds.hpp"
#include "measure.hpp"
#include <rlock/rlock.hpp>

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace rlock::bench {

namespace {

/// Names that all have the same length and fit no small string.
std::string nameOf(std::size_t number) {
  return fmt::format("bench:memory:lock:{:08}", number);
}

struct Limits {
  int aim = 0;
  int bound = 0;  ///< a tenth or less above what was reached; 0: none
};

/// The memory that one more of something takes, by the difference that many of them make.
struct Share {
  double bytes = 0;
  double blocks = 0;
  std::string breakdown;
};

Share shareOf(const HeapCensus& before, std::size_t number) {
  Share share;
  const auto each = static_cast<double>(number);
  for (const auto& [bytes, count] : HeapCensus::take().since(before)) {
    const double part = static_cast<double>(count) / each;
    share.bytes += part * static_cast<double>(bytes);
    // Less is a buffer that has grown, of the connection or of a thread.
    if (bytes == 1) {
      share.breakdown +=
          fmt::format("{}{:.1f} of tables", share.breakdown.empty() ? "" : " + ", part);
    } else if (part > 0.02 || part < -0.02) {
      share.blocks += part;
      share.breakdown +=
          fmt::format("{}{:.3g} x {}", share.breakdown.empty() ? "" : " + ", part, bytes);
    }
  }
  return share;
}

class Memory {
 public:
  Memory(const Context& context, Report& report)
      : few_(context.pick<std::size_t>(10'000, 2'000, 200)),
        many_(context.pick<std::size_t>(110'000, 12'000, 1'200)),
        options_(optionsOf(context)),
        report_(report) {}

  /// The objects, and then what they add when they are held.
  void objectsAndHolds() {
    auto client = Client::connect(options_);
    std::vector<RLock> locks;
    locks.reserve(many_);
    const auto make = [&](std::size_t to) {
      while (locks.size() < to) {
        locks.push_back(client.getLock(nameOf(locks.size())));
      }
    };
    make(few_);
    HeapCensus before = HeapCensus::take();
    make(many_);
    const auto name = static_cast<double>(nameOf(0).size());
    const Share object = shareOf(before, many_ - few_);
    row("RLock object, without its name", "object", object, name, {150, 260});

    const OwnerId owner = newOwner();
    const auto take = [&](std::size_t from, std::size_t to) {
      if (forEach(from, to, [&](std::size_t i) { return locks[i].lockAsync({}, owner); }) > 0) {
        throw std::runtime_error("not all locks were obtained");
      }
    };
    take(0, few_);
    before = HeapCensus::take();
    take(few_, many_);
    Share hold = shareOf(before, many_ - few_);
    row("hold of an RLock", "hold", hold, 0, {320, 320});
    // A hold keeps the keys of its lock when the application has dropped the object.
    before = HeapCensus::take();
    locks.erase(locks.begin() + static_cast<std::ptrdiff_t>(few_), locks.end());
    const Share dropped = shareOf(before, many_ - few_);
    hold.bytes += object.bytes + dropped.bytes;
    hold.blocks += object.blocks + dropped.blocks;
    hold.breakdown = fmt::format("the two above, less {:.0f}", -dropped.bytes);
    row("both, its RLock dropped", "hold_alone", hold, name, {});
    client.close(std::chrono::seconds(10));
  }

  /// Waiters of one lock, each an owner of its own, with an empty handler.
  void waiters() {
    auto client = Client::connect(options_);
    RLock lock = client.getLock(nameOf(0));
    lock.lock();
    std::size_t begun = 0;
    const auto begin = [&](std::size_t to) {
      for (; begun < to; ++begun) {
        lock.lockAsync({}, newOwner()).start([](const Result<void>& /*result*/) {});
      }
      waitUntil([&] { return client.stats().waiters == to; });
    };
    begin(few_);
    const HeapCensus before = HeapCensus::take();
    begin(many_);
    row("asynchronous waiter", "waiter", shareOf(before, many_ - few_), 0, {400, 1100});
    client.close(std::chrono::seconds(10));
  }

  void print() { table_.print(); }
  [[nodiscard]] bool withinBounds() const { return withinBounds_; }

 private:
  static Options optionsOf(const Context& context) {
    Options options = context.options;
    // No renewal, poll or pause of the machine is to come in between.
    options.watchdogTimeout = std::chrono::minutes(30);
    options.safetyPoll = std::chrono::minutes(5);
    options.maxOperations = 1'000'000;
    return options;
  }

  void row(const std::string& what,
           const std::string& subject,
           const Share& share,
           double less,
           Limits limits) {
    const double bytes = share.bytes - less;
    table_.row({what,
                showDecimal(bytes, 0),
                limits.aim != 0 ? fmt::format("<= {}", limits.aim) : "",
                limits.bound != 0 ? fmt::format("{}", limits.bound) : "",
                showDecimal(share.blocks, 2),
                share.breakdown});
    withinBounds_ = withinBounds_ && (limits.bound == 0 || bytes <= limits.bound);
    report_.add("memory",
                subject,
                fmt::format("count={}", many_ - few_),
                {{"bytes", bytes}, {"blocks", share.blocks}});
  }

  const std::size_t few_;
  const std::size_t many_;
  const Options options_;
  Report& report_;
  bool withinBounds_ = true;
  Table table_{{"", "bytes", "aim", "bound", "blocks", "blocks by their size"}};
};

}  // namespace

void runMemory(const Context& context, Report& report) {
  printHeading("memory",
               "Bytes that one more of each takes: the difference of two numbers of them. Counted\n"
               "in the blocks of the allocator, its own part included; not timed.");
  if (!HeapCensus::works()) {
    printProgress("memory: cannot be counted here\n");
    return;
  }
  Memory memory(context, report);
  printProgress("memory, objects and holds");
  memory.objectsAndHolds();
  printProgress("memory, waiters");
  memory.waiters();
  memory.print();
  if (context.check && !memory.withinBounds()) {
    throw std::runtime_error("a figure is above its bound");
  }
}

}  // namespace rlock::bench
