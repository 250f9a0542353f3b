// SPDX-License-Identifier: Apache-2.0
// A shop sells what it has in stock, by a service of several processes. Each reads the stock,
// charges the customer, and writes the stock less one. Two that read the same number sell the same
// piece: without a lock the shop sells more than it has, with one it does not. A database can lock
// the row instead, if the stock is in one.
#include "mysql.hpp"
#include "processes.hpp"
#include "redis.hpp"
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

namespace {

constexpr std::string_view kUsage = R"(Usage: stock [--mysql CLIENT] [URI]

Four processes sell 100 pieces to 200 customers, first without a lock, then with one.

  --mysql CLIENT  and then once more with the lock of a row in MySQL or MariaDB. CLIENT starts its
                  client, such as 'mariadb -h db1 -u shop shop'. A table is made and dropped.
  --help          show this

URI: of the Redis server; by default RLOCK_URI, else redis://127.0.0.1:6379
Exit status: 0 if too many were sold without a lock and exactly as many as there were with one, else
1.
)";

constexpr std::string_view kWithoutLock = "without a lock";
constexpr std::string_view kWithLock = "with a lock";
constexpr std::string_view kWithRowLock = "with MySQL's row lock";
constexpr int kProcesses = 4;
constexpr int kPieces = 100;
constexpr int kCustomers = 200;

/// Where the stock is, and what keeps two processes from reading the same number.
class Stock {
 public:
  Stock() = default;
  Stock(const Stock&) = delete;
  Stock& operator=(const Stock&) = delete;
  virtual ~Stock() = default;

  virtual void fill() = 0;
  virtual long long left() = 0;
  virtual void remove() = 0;
  /// @returns false when there was none left
  virtual bool sell() = 0;
};

void takeMoney() {
  std::this_thread::sleep_for(1ms);
}

class StockInRedis final : public Stock {
 public:
  StockInRedis(const std::string& uri, const std::string& shop, bool useLock)
      : key_(shop + ":stock"),
        useLock_(useLock),
        redis_(uri),
        client_(rlock::Client::connect(uri)),
        // One lock for each product: the sale of another one is not held up.
        lock_(client_.getLock(shop + ":lock")) {}

  void fill() override { write(kPieces); }
  long long left() override { return redis_.number({"GET", key_}); }
  void remove() override { redis_.command({"DEL", key_}); }

  bool sell() override {
    // The lock is kept until the end of this block.
    std::optional<rlock::Lease> lease;
    if (useLock_) {
      lease = lock_.acquire();
    }
    const long long before = left();
    if (before == 0) {
      return false;
    }
    takeMoney();
    if (lease && !lease->held()) {
      return false;  // a pause as long as the lease: what was read may be out of date by now
    }
    write(before - 1);
    return true;
  }

 private:
  void write(long long pieces) { redis_.command({"SET", key_, std::to_string(pieces)}); }

  const std::string key_;
  const bool useLock_;
  Redis redis_;
  rlock::Client client_;
  rlock::RLock lock_;
};

class StockInMySql final : public Stock {
 public:
  StockInMySql(const std::string& client, const std::string& shop)
      : table_('`' + shop + '`'), database_(client) {}

  void fill() override {
    database_.execute("CREATE TABLE " + table_ +
                      " (product INT PRIMARY KEY, pieces INT) ENGINE = InnoDB; INSERT INTO " +
                      table_ + " VALUES (1, " + std::to_string(kPieces) + ")");
  }
  long long left() override {
    return std::stoll(database_.query("SELECT pieces FROM " + table_ + " WHERE product = 1;"));
  }
  void remove() override { database_.execute("DROP TABLE " + table_); }

  bool sell() override {
    // The row is locked from here to the end of the transaction. A reader without FOR UPDATE is not
    // held up, and may sell what is sold.
    const long long before = std::stoll(
        database_.query("BEGIN; SELECT pieces FROM " + table_ + " WHERE product = 1 FOR UPDATE;"));
    if (before == 0) {
      database_.execute("ROLLBACK");
      return false;
    }
    takeMoney();
    database_.execute("UPDATE " + table_ + " SET pieces = " + std::to_string(before - 1) +
                      " WHERE product = 1; COMMIT");
    return true;
  }

 private:
  const std::string table_;
  MySql database_;
};

/// @param lock  one of the constants above
std::unique_ptr<Stock> makeStock(const std::string& uri,
                                 const std::string& shop,
                                 std::string_view lock) {
  if (lock == kWithRowLock) {
    return std::make_unique<StockInMySql>(std::getenv("EXAMPLE_MYSQL"), shop);
  }
  return std::make_unique<StockInRedis>(uri, shop, lock == kWithLock);
}

/// One process of the service: serves the customers in the queue until the shop closes.
void serve(const std::string& uri, const std::string& shop, std::string_view lock) {
  Redis redis(uri);
  const std::unique_ptr<Stock> stock = makeStock(uri, shop, lock);
  redis.command({"INCR", shop + ":open"});
  // The queue gives each customer to one process. Its answer is a pair, the queue and the customer.
  while (redis.list({"BLPOP", shop + ":queue", "0"}).at(1) != "closed") {
    if (stock->sell()) {
      redis.command({"INCR", shop + ":sold"});
    }
  }
}

/// The load generator: opens a shop, sends the customers, and counts at the end.
/// @returns how many pieces too many were sold
long long trade(const std::string& uri, std::string_view lock) {
  Redis redis(uri);
  const std::string shop = uniqueName("example:stock");
  std::vector<Process> service;
  for (int i = 0; i < kProcesses; ++i) {
    service.emplace_back(std::vector<std::string>{"--serve", shop, std::string(lock)});
  }
  waitUntil("all processes are ready", [&] {
    return redis.number({"GET", shop + ":open"}) == kProcesses;
  });
  const std::unique_ptr<Stock> stock = makeStock(uri, shop, lock);
  stock->fill();

  const auto start = std::chrono::steady_clock::now();
  for (int customer = 1; customer <= kCustomers; ++customer) {
    redis.command({"RPUSH", shop + ":queue", std::to_string(customer)});
  }
  for (int i = 0; i < kProcesses; ++i) {
    redis.command({"RPUSH", shop + ":queue", "closed"});
  }
  for (Process& process : service) {
    if (process.wait() != 0) {
      throw std::runtime_error("a process of the service failed");
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;

  const long long sold = redis.number({"GET", shop + ":sold"});
  const long long oversold = sold - kPieces;
  say(std::string(lock) + ": " + std::to_string(sold) + " sold, " + std::to_string(oversold) +
      " too many; the stock says " + std::to_string(stock->left()) + " are left; " +
      std::to_string(static_cast<int>(kCustomers / took.count())) + " customers a second");
  stock->remove();
  redis.command({"DEL", shop + ":open", shop + ":sold"});
  return oversold;
}

int run(const std::string& uri, const std::string& mysql) {
  // For the processes; not as arguments, which everybody can see, for there may be passwords.
  ::setenv("RLOCK_URI", uri.c_str(), 1);
  ::setenv("EXAMPLE_MYSQL", mysql.c_str(), 1);
  std::signal(SIGPIPE, SIG_IGN);  // a client of MySQL that does not start is reported
  say(std::to_string(kProcesses) + " processes sell " + std::to_string(kPieces) + " pieces to " +
      std::to_string(kCustomers) + " customers");
  bool good = trade(uri, kWithoutLock) > 0;
  good = trade(uri, kWithLock) == 0 && good;
  if (!mysql.empty()) {
    good = trade(uri, kWithRowLock) == 0 && good;
  }
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 3 && arguments[0] == "--serve") {
      serve(serverUri(1, argv), arguments[1], arguments[2]);
      return 0;
    }
    if (arguments == std::vector<std::string>{"--help"}) {
      std::cout << kUsage;
      return 0;
    }
    if (arguments.size() >= 2 && arguments[0] == "--mysql") {
      return run(serverUri(argc - 2, argv + 2), arguments[1]);
    }
    return run(serverUri(argc, argv), "");
  } catch (const std::exception& error) {
    std::cerr << "stock: " << error.what() << '\n';
    return 1;
  }
}
