// SPDX-License-Identifier: Apache-2.0
// The demonstration: several processes increment a counter in a file, which only the lock protects.
// In the middle the process that holds the lock is killed, and another takes over. At the end the
// counter shows whether an increment was lost.
#include "contend_journal.hpp"
#include "contend_report.hpp"
#include "contend_worker.hpp"
#include <rlock/rlock.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <iostream>
#include <optional>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

namespace contend {
namespace {

constexpr std::string_view kUsage = R"(Usage: contend [OPTION]... [URI]

Several processes increment a counter in a file, which only the lock protects. In the middle the one
that holds the lock is killed, and another takes over.

  --processes N   how many, 1 to 64 (default 4)
  --seconds S     how long, 1 to 3600 (default 6)
  --lease MS      the watchdog timeout, 100 to 60000 (default 1000): how long a dead process keeps
                  the lock
  --no-kill       kill nobody
  --no-lock       do without the lock, to see what it is good for (kills nobody)
  --help          show this

URI: of the Redis server; by default RLOCK_URI, else redis://127.0.0.1:6379
Exit status: 0 if no update was lost, 1 if one was or something failed, 2 for wrong arguments, 128
and the signal's number when interrupted.
)";

struct Settings {
  int processes = 4;
  int seconds = 6;
  int leaseMs = 1000;
  bool kill = true;
  bool useLock = true;
  std::string uri;
};

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

int parseNumber(std::string_view option, std::string_view text, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most) {
    throw UsageError(std::string(option) + " takes a number from " + std::to_string(least) +
                     " to " + std::to_string(most));
  }
  return value;
}

Settings parse(const std::vector<std::string_view>& arguments) {
  Settings settings;
  const char* uri = std::getenv("RLOCK_URI");
  settings.uri = uri != nullptr ? uri : "redis://127.0.0.1:6379";
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    const auto number = [&](int least, int most) {
      ++i;
      return parseNumber(argument, i < arguments.size() ? arguments[i] : "", least, most);
    };
    if (argument == "--processes") {
      settings.processes = number(1, kMaxWorkers - 1);
    } else if (argument == "--seconds") {
      settings.seconds = number(1, 3600);
    } else if (argument == "--lease") {
      settings.leaseMs = number(100, 60'000);
    } else if (argument == "--no-kill") {
      settings.kill = false;
    } else if (argument == "--no-lock") {
      settings.useLock = settings.kill = false;
    } else if (argument.starts_with('-')) {
      throw UsageError("unknown option " + std::string(argument));
    } else {
      settings.uri = argument;
    }
  }
  return settings;
}

volatile std::sig_atomic_t interruptedBy = 0;

void catchInterrupts() {
  struct sigaction action {};
  action.sa_handler = [](int signal) { interruptedBy = signal; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second one ends this process at once
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    ::sigaction(signal, &action, nullptr);
  }
}

class TempDirectory {
 public:
  TempDirectory() {
    std::string pattern = std::filesystem::temp_directory_path() / "rlock-contend-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw std::system_error(errno, std::generic_category(), pattern);
    }
    path_ = pattern;
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Events, each on a line that stays; and on a terminal one line of progress below them, which is
/// rewritten in place. Elsewhere progress is a line per second.
class Screen {
 public:
  void event(std::string_view text) {
    std::string line(wipe());
    line.append(text).append("\n");
    write(line);
  }

  [[nodiscard]] bool progressDue() const {
    return now() - shownAt_ >= (terminal_ ? 100'000'000 : 1'000'000'000);
  }

  void progress(std::string text) {
    shownAt_ = now();
    if (!terminal_) {
      write(text + "\n");
      return;
    }
    winsize size{};
    const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    text.resize(std::min<std::size_t>(text.size(), known ? size.ws_col - 1U : 79U));
    write(std::string(wipe()) + text);
    line_ = true;
  }

  void endProgress() { write(wipe()); }

 private:
  std::string_view wipe() { return std::exchange(line_, false) ? "\r\x1b[K" : ""; }
  static void write(std::string_view text) { std::cerr << text << std::flush; }

  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool line_ = false;
  Nanoseconds shownAt_ = now();
};

class Coordinator {
 public:
  explicit Coordinator(Settings settings) : settings_(std::move(settings)) {
    if (::pipe2(pipe_.data(), O_CLOEXEC) != 0) {
      throw std::system_error(errno, std::generic_category(), "pipe");
    }
    ::fcntl(pipe_[0], F_SETFL, O_NONBLOCK);
    ::setenv("RLOCK_URI", settings_.uri.c_str(), 1);  // not as an argument: it may hold a password
  }
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;
  ~Coordinator() {
    for (WorkerRecord& worker : workers_) {
      if (worker.running) {
        ::kill(worker.pid, SIGKILL);
        ::waitpid(worker.pid, nullptr, 0);
      }
    }
    ::close(pipe_[0]);
    ::close(pipe_[1]);
  }

  int run() {
    {
      // A wrong address is better said once, here, than by every worker. The id makes the name of
      // the lock this demonstration's own.
      const auto client = rlock::Client::connect(settings_.uri);
      lockName_ = "example:contend:" + client.id();
    }
    for (int i = 0; i < settings_.processes; ++i) {
      start(0);
    }
    const bool ready = waitUntilReady();
    startedAt_ = now();
    journal_.board().go = true;
    if (ready) {
      screen_.event(std::to_string(settings_.processes) + " processes, " +
                    (settings_.useLock ? "one lock" : "no lock") + ", one counter in a file");
      work();
    }
    const double seconds = static_cast<double>(now() - startedAt_) / 1e9;
    stopWorkers();
    screen_.endProgress();
    if (!ready) {
      return interruptedBy != 0 ? 128 + interruptedBy : 1;
    }

    const Findings findings = evaluate(journal_, workers_);
    print(std::cout,
          findings,
          workers_,
          {.seconds = seconds,
           .startedAt = startedAt_,
           .lease = settings_.leaseMs * Nanoseconds{1'000'000},
           .useLock = settings_.useLock});
    if (settings_.kill && !victim_) {
      std::cout << "  nobody was killed: "
                << (interruptedBy != 0 ? "interrupted before that"
                                       : "none was caught inside in time")
                << '\n';
    }
    if (failed_ || !findings.exclusive()) {
      return 1;
    }
    return interruptedBy != 0 ? 128 + interruptedBy : 0;
  }

 private:
  void start(int replaces) {
    const int number = static_cast<int>(workers_.size()) + 1;
    std::vector<std::string> words{"contend",
                                   "--worker",
                                   std::to_string(number),
                                   directory_.path(),
                                   lockName_,
                                   std::to_string(settings_.leaseMs),
                                   settings_.useLock ? "lock" : "no-lock"};
    std::vector<char*> arguments;
    for (std::string& word : words) {
      arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);

    const pid_t coordinator = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) {
      throw std::system_error(errno, std::generic_category(), "fork");
    }
    if (pid == 0) {
      // No worker outlives the coordinator, whatever ends it; and Ctrl-C is the coordinator's to
      // handle.
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::signal(SIGINT, SIG_IGN);
      ::dup2(pipe_[1], STDERR_FILENO);
      if (::getppid() == coordinator) {
        ::execv("/proc/self/exe", arguments.data());
      }
      ::_exit(127);
    }
    WorkerRecord worker;
    worker.number = number;
    worker.pid = pid;
    worker.replaces = replaces;
    workers_.push_back(worker);
  }

  bool waitUntilReady() {
    const Nanoseconds deadline = now() + Nanoseconds{30} * 1'000'000'000;
    while (now() < deadline && interruptedBy == 0 && !failed_) {
      if (std::all_of(workers_.begin(), workers_.end(), [this](const WorkerRecord& worker) {
            return journal_.slot(worker.number).phase != Phase::starting;
          })) {
        return true;
      }
      attend(5);
    }
    if (interruptedBy == 0) {
      screen_.event("the processes did not all start");
    }
    return false;
  }

  void work() {
    const Nanoseconds length = settings_.seconds * Nanoseconds{1'000'000'000};
    while (now() < startedAt_ + length && interruptedBy == 0 && !failed_) {
      const bool hunting = settings_.kill && !victim_ && now() > startedAt_ + length / 2;
      attend(hunting ? 1 : 5);
      if (hunting) {
        killHolder();
      }
      noticeTakeover();
      if (screen_.progressDue()) {
        showProgress(length);
      }
    }
  }

  void stopWorkers() {
    journal_.board().stop = true;
    const Nanoseconds deadline = now() + Nanoseconds{15} * 1'000'000'000;
    while (anyRunning()) {
      if (now() > deadline) {
        screen_.event("not all processes ended when told to");
        failed_ = true;
        for (const WorkerRecord& worker : workers_) {
          if (worker.running) {
            ::kill(worker.pid, SIGKILL);
          }
        }
      }
      attend(5);
    }
    relay();
    summarizeUnshown();
  }

  [[nodiscard]] bool anyRunning() const {
    return std::any_of(workers_.begin(), workers_.end(), [](const WorkerRecord& worker) {
      return worker.running;
    });
  }

  /// Waits up to `limit` ms for the workers to say something, and sees who has ended.
  void attend(int limit) {
    pollfd waiting{pipe_[0], POLLIN, 0};
    if (::poll(&waiting, 1, limit) > 0) {
      relay();
    }
    for (WorkerRecord& worker : workers_) {
      int status = 0;
      if (worker.running && ::waitpid(worker.pid, &status, WNOHANG) == worker.pid) {
        ended(worker, status);
      }
    }
  }

  void relay() {
    std::array<char, 4096> buffer{};
    ssize_t size = 0;
    while ((size = ::read(pipe_[0], buffer.data(), buffer.size())) > 0) {
      said_.append(buffer.data(), static_cast<std::size_t>(size));
    }
    for (std::size_t end = said_.find('\n'); end != std::string::npos; end = said_.find('\n')) {
      if (now() - relayedSince_ > Nanoseconds{1'000'000'000}) {
        summarizeUnshown();
        relayedSince_ = now();
        relayed_ = 0;
      }
      if (++relayed_ <= kRelayedPerSecond) {
        screen_.event(at() + said_.substr(0, end));
      } else {
        ++unshown_;
      }
      said_.erase(0, end + 1);
    }
  }

  void summarizeUnshown() {
    if (unshown_ > 0) {
      screen_.event(at() + "and " + grouped(unshown_) + " more lines from the workers");
      unshown_ = 0;
    }
  }

  void ended(WorkerRecord& worker, int status) {
    worker.running = false;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
      return;
    }
    // A worker that is killed from outside leaves the others to go on; one that fails is a failure.
    failed_ = failed_ || WIFEXITED(status);
    worker.endedEarly = now();
    worker.ending = WIFEXITED(status) ? "exited with status " + std::to_string(WEXITSTATUS(status))
                                      : "killed by signal " + std::to_string(WTERMSIG(status));
    screen_.event(at() + "worker " + std::to_string(worker.number) + " " + worker.ending);
  }

  /// Stops a worker that seems to hold the lock, looks, and kills it if it does.
  void killHolder() {
    for (WorkerRecord& worker : workers_) {
      const Slot& slot = journal_.slot(worker.number);
      if (!worker.running || slot.phase != Phase::inside) {
        continue;
      }
      int status = 0;
      ::kill(worker.pid, SIGSTOP);
      if (::waitpid(worker.pid, &status, WUNTRACED) != worker.pid || !WIFSTOPPED(status)) {
        ended(worker, status);
        return;
      }
      const std::uint64_t value = slot.value;
      if (slot.phase != Phase::inside || journal_.readCounter() != value) {
        ::kill(worker.pid, SIGCONT);
        continue;
      }
      worker.endedEarly = now();
      ::kill(worker.pid, SIGKILL);
      ::waitpid(worker.pid, nullptr, 0);
      worker.running = false;
      worker.killed = true;
      worker.ending = "killed while it held the lock";
      victim_ = worker.number;
      killedAt_ = *worker.endedEarly;
      screen_.event(at() + "kill -9 worker " + std::to_string(worker.number) + " (pid " +
                    std::to_string(worker.pid) + "), which holds the lock and has read " +
                    grouped(value));
      start(worker.number);
      return;
    }
  }

  void noticeTakeover() {
    if (!victim_ || takenOver_) {
      return;
    }
    for (const WorkerRecord& worker : workers_) {
      const Nanoseconds entered = journal_.slot(worker.number).enteredAt;
      if (entered > killedAt_) {
        takenOver_ = true;
        screen_.event(at() + "worker " + std::to_string(worker.number) +
                      " has the lock, and reads " + grouped(journal_.slot(worker.number).value) +
                      " or more");
        return;
      }
    }
  }

  void showProgress(Nanoseconds length) {
    std::uint64_t completed = 0;
    std::string holder = "nobody";
    for (const WorkerRecord& worker : workers_) {
      const Slot& slot = journal_.slot(worker.number);
      completed += slot.completed;
      if (worker.running && slot.phase == Phase::inside) {
        holder = "worker " + std::to_string(worker.number);
      }
    }
    if (victim_ && !takenOver_) {
      holder = "worker " + std::to_string(*victim_) + ", which is dead";
    }
    constexpr Nanoseconds kWidth = 24;
    const auto filled = static_cast<std::size_t>(
        std::clamp<Nanoseconds>((now() - startedAt_) * kWidth / length, 0, kWidth));
    std::string bar(static_cast<std::size_t>(kWidth), '.');
    bar.replace(0, filled, filled, '#');
    screen_.progress(at() + "[" + bar + "] " + grouped(completed) +
                     " increments, inside: " + holder);
  }

  [[nodiscard]] std::string at() const {
    std::array<char, 32> text{};
    const double seconds = startedAt_ == 0 ? 0 : static_cast<double>(now() - startedAt_) / 1e9;
    std::snprintf(text.data(), text.size(), "%6.2f s  ", seconds);
    return text.data();
  }

  const Settings settings_;
  const TempDirectory directory_;
  Journal journal_ = [this] {
    Journal::create(directory_.path());
    return Journal(directory_.path());
  }();
  Screen screen_;
  std::array<int, 2> pipe_{-1, -1};
  // Lines of the workers. When Redis goes away, they all have much to say.
  static constexpr int kRelayedPerSecond = 6;
  std::string said_;  // of a line whose end has not come yet
  Nanoseconds relayedSince_ = 0;
  int relayed_ = 0;
  std::uint64_t unshown_ = 0;
  std::string lockName_;
  std::vector<WorkerRecord> workers_;
  Nanoseconds startedAt_ = 0;
  std::optional<int> victim_;
  Nanoseconds killedAt_ = 0;
  bool takenOver_ = false;
  bool failed_ = false;
};

}  // namespace
}  // namespace contend

int main(int argc, char** argv) {
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 6 && arguments[0] == "--worker") {
      return contend::runWorker({
          .number = std::atoi(argv[2]),
          .directory = argv[3],
          .uri = std::getenv("RLOCK_URI"),
          .lockName = argv[4],
          .lease = std::chrono::milliseconds(std::atoi(argv[5])),
          .useLock = arguments[5] == "lock",
      });
    }
    if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
      std::cout << contend::kUsage;
      return 0;
    }
    contend::catchInterrupts();
    return contend::Coordinator(contend::parse(arguments)).run();
  } catch (const contend::UsageError& error) {
    std::cerr << "contend: " << error.what() << "; --help tells more\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "contend: " << error.what() << '\n';
    return 1;
  }
}
