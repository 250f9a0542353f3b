// SPDX-License-Identifier: Apache-2.0

// `rlock top`: looks at the locks of a server once an interval and draws the picture that
// topPicture() makes. main() calls topCommand() once, on the main thread; it returns at `q`, at the
// end of the input, at a signal that asks to end, or after --frames pictures.
//
// The terminal is put back at the end and before a stop by Ctrl-Z, and in the background nothing is
// drawn. Once it is connected, a server that does not answer ends nothing: the picture shows the
// error and the locks of the last look.
#include "cli/commands.hpp"
#include "cli/connection.hpp"
#include "cli/holder_label.hpp"
#include "cli/signal_inbox.hpp"
#include "cli/top_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <optional>
#include <poll.h>
#include <sys/types.h>
#include <termios.h>
#include <unistd.h>
#include <utility>

namespace rlock::cli {

namespace {

/// The terminal while pictures are drawn on it: the alternative screen, no cursor, keys at once.
/// Nothing of that if it is no terminal.
class Screen {
 public:
  Screen() : terminal_(::isatty(STDOUT_FILENO) == 1) { enter(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  ~Screen() { leave(); }

  [[nodiscard]] bool readsKeys() const { return keys_; }

  /// Puts screen and keys back as they were, until the next picture.
  void leave() {
    if (std::exchange(entered_, false)) {
      // The terminal may have gone, of which fmt::print() would throw.
      std::fputs("\033[?25h\033[?1049l", stdout);
      std::fflush(stdout);
    }
    if (std::exchange(keys_, false)) {
      ::tcsetattr(STDIN_FILENO, TCSANOW, &original_);
    }
  }

  /// In the background of its terminal it draws nothing.
  void draw(std::vector<std::string> lines) {
    if (!terminal_) {
      while (!lines.empty() && lines.back().empty()) {
        lines.pop_back();
      }
      fmt::print("{}\n", fmt::join(lines, "\n"));
    } else if (enter()) {
      std::string text = "\033[H";
      for (std::size_t i = 0; i < lines.size(); ++i) {
        text += (i > 0 ? "\r\n" : "") + lines[i] + "\033[K";
      }
      fmt::print("{}", text);
    }
    flushOutput();
  }

 private:
  // False: another job has the terminal, or there is none.
  bool enter() {
    if (!terminal_ || entered_) {
      return entered_;
    }
    const pid_t foreground = ::tcgetpgrp(STDOUT_FILENO);
    if (foreground >= 0 && foreground != ::getpgrp()) {
      return false;
    }
    entered_ = true;
    if (::isatty(STDIN_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &original_) == 0) {
      termios raw = original_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      keys_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    }
    fmt::print("\033[?1049h\033[?25l");
    return true;
  }

  bool terminal_;
  bool entered_ = false;
  bool keys_ = false;
  termios original_{};
};

bool quitPressed() {
  std::array<char, 64> keys{};
  const ssize_t got = ::read(STDIN_FILENO, keys.data(), keys.size());
  return got <= 0 || std::find(keys.begin(), keys.begin() + got, 'q') != keys.begin() + got;
}

}  // namespace

int topCommand(const Arguments& arguments) {
  const SignalInbox signals;
  Client client = connectClient(arguments);
  const Style style(arguments.color, STDOUT_FILENO);
  Screen screen;
  TopTracker tracker;
  std::vector<LockInfo> locks;
  TopHeader header;
  header.server = uriWithoutSecrets(arguments.uri);
  auto next = std::chrono::steady_clock::now();
  int frame = 0;
  for (;;) {
    const auto steadyNow = std::chrono::steady_clock::now();
    const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
    if (steadyNow >= next) {
      header.time = showTime(now).substr(11, 8);
      try {
        header.roundTrip = std::chrono::duration_cast<std::chrono::microseconds>(client.ping());
        // It asks about many names at once.
        locks = client.listAsync(arguments.pattern).toFuture().get();
        const Capabilities capabilities = client.capabilities();
        header.version = capabilities.server + " " + capabilities.version;
        header.error.clear();
        tracker.update(locks, steadyNow);
      } catch (const Error& error) {
        header.error = error.what();
      }
      // From here: a look that takes long must not be followed by the next one at once.
      next = Duration(arguments.interval).deadlineFrom(std::chrono::steady_clock::now());
      ++frame;
      screen.draw(
          topPicture(header, locks, tracker, now, steadyNow, terminalSize(STDOUT_FILENO), style));
      if (frame == arguments.frames) {
        return 0;
      }
    }
    std::array<pollfd, 2> watched{
        {{signals.descriptor(), POLLIN, 0}, {screen.readsKeys() ? STDIN_FILENO : -1, POLLIN, 0}}};
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(next - std::chrono::steady_clock::now())
            .count();
    // A minute at most: the time that is left may be more than poll() takes.
    ::poll(watched.data(),
           watched.size(),
           static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000)));
    if (watched[1].revents != 0 && quitPressed()) {
      return 0;
    }
    while (const auto signal = signals.next()) {
      if (SignalInbox::asksToEnd(signal->signal)) {
        return 0;
      }
      if (signal->signal == SIGTSTP) {
        // The shell gets its terminal as it was.
        screen.leave();
        signals.suspend(SignalInbox::Reach::process);
      }
      // A window of another size, too, is drawn anew.
      next = std::chrono::steady_clock::now();
    }
  }
}

}  // namespace rlock::cli
