// SPDX-License-Identifier: Apache-2.0
// A terminal belongs to the command: its group is the foreground, and job control reaches the
// user's shell.
#include "cli/cli_harness.hpp"
#include "support/temp_dir.hpp"

#include <gmock/gmock.h>

#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <optional>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rlock::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

/// A program on a terminal of its own, whose other end we have.
class OnTerminal {
 public:
  OnTerminal(const std::string& uri, const std::vector<std::string>& argv) {
    master_ = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    ::grantpt(master_);
    ::unlockpt(master_);
    std::array<char, 128> name{};
    ::ptsname_r(master_, name.data(), name.size());
    winsize size{24, 80, 0, 0};
    std::vector<char*> pointers;
    for (const std::string& argument : argv) {
      pointers.push_back(const_cast<char*>(argument.c_str()));
    }
    pointers.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::setsid();
      const int terminal = ::open(name.data(), O_RDWR);
      ::ioctl(terminal, TIOCSWINSZ, &size);
      for (int standard = 0; standard <= 2; ++standard) {
        ::dup2(terminal, standard);
      }
      ::close(terminal);
      ::setenv("RLOCK_URI", uri.c_str(), 1);
      ::setenv("TERM", "xterm", 1);
      ::setenv("PS1", "prompt> ", 1);
      ::execvp(pointers[0], pointers.data());
      ::_exit(127);
    }
  }
  OnTerminal(const OnTerminal&) = delete;
  OnTerminal& operator=(const OnTerminal&) = delete;
  ~OnTerminal() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(master_);
  }

  void type(std::string_view keys) const {
    ASSERT_GT(::write(master_, keys.data(), keys.size()), 0);
  }

  /// Reads until the text has come, after what was expected before.
  [[nodiscard]] bool shows(std::string_view text, std::chrono::milliseconds within = kLong) {
    const Deadline deadline(within);
    for (;;) {
      const std::size_t at = unread_.find(text);
      if (at != std::string::npos) {
        unread_.erase(0, at + text.size());
        return true;
      }
      if (!readSome(deadline)) {
        return false;
      }
    }
  }

  /// For a shell's prompt: what is typed just when a job has stopped may be lost, so it is typed
  /// again.
  [[nodiscard]] bool typedShows(std::string_view keys, std::string_view text) {
    for (int attempt = 0; attempt < 5; ++attempt) {
      type(keys);
      if (shows(text, kLong / 5)) {
        return true;
      }
    }
    return false;
  }

  /// @returns the exit code as a shell reports it, or -1
  int wait() {
    const Deadline deadline(kLong);
    while (readSome(deadline)) {
    }
    if (deadline.remaining().count() <= 0) {
      // It may be stopped.
      ::kill(pid_, SIGKILL);
    }
    int status = 0;
    if (::waitpid(pid_, &status, 0) != pid_) {
      return -1;
    }
    pid_ = -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  [[nodiscard]] const std::string& all() const { return all_; }

 private:
  bool readSome(const Deadline& deadline) {
    pollfd watched{master_, POLLIN, 0};
    if (::poll(&watched, 1, static_cast<int>(deadline.remaining().count())) <= 0) {
      return false;
    }
    std::array<char, 4096> buffer{};
    const ssize_t got = ::read(master_, buffer.data(), buffer.size());
    if (got <= 0) {
      return false;
    }
    unread_.append(buffer.data(), static_cast<std::size_t>(got));
    all_.append(buffer.data(), static_cast<std::size_t>(got));
    return true;
  }

  int master_ = -1;
  pid_t pid_ = -1;
  std::string unread_;
  std::string all_;
};

class CliTerminal : public CliTest {};

TEST_F(CliTerminal, CR5_TheCommandHasTheTerminal) {
  OnTerminal terminal(
      server().uri(),
      {cliProgram(),
       "run",
       "a",
       "sh",
       "-c",
       "test -t 0 && test -t 1 && test -t 2 && echo a terminal; read line; echo got $line"});
  ASSERT_TRUE(terminal.shows("a terminal"));
  terminal.type("words\n");
  EXPECT_TRUE(terminal.shows("got words"));
  EXPECT_EQ(terminal.wait(), 0);
}

TEST_F(CliTerminal, CR5_AKeyThatInterruptsReachesTheCommand) {
  OnTerminal terminal(
      server().uri(),
      {cliProgram(),
       "run",
       "a",
       "sh",
       "-c",
       // A shell that is interrupted just before it starts a program waits for that first.
       "trap 'exit 130' INT; echo ready; while :; do sleep 0.1; done"});
  ASSERT_TRUE(terminal.shows("ready"));
  terminal.type("\x03");
  EXPECT_EQ(terminal.wait(), 128 + SIGINT);
  EXPECT_FALSE(redis().exists("a"));
}

TEST_F(CliTerminal, CR5_APipelineKeepsTheTerminal) {
  // The program after the pipe reads it while the command runs.
  const TempDir directory;
  const std::string running = directory.file("running");
  std::ofstream(running) << "yes\n";
  OnTerminal terminal(
      server().uri(),
      {"sh",
       "-c",
       cliProgram() + " run a sh -c 'echo ready; while [ -e " + running +
           " ]; do sleep 0.02; done' | { read first; echo $first to read; read answer </dev/tty; "
           "echo got $answer; rm " +
           running + "; }"});
  ASSERT_TRUE(terminal.shows("ready to read")) << terminal.all();
  terminal.type("words\n");
  EXPECT_TRUE(terminal.shows("got words")) << terminal.all();
  EXPECT_EQ(terminal.wait(), 0);
}

TEST_F(CliTerminal, CR5_ACommandInTheForegroundStaysInOurGroup) {
  for (const bool foreground : {true, false}) {
    std::vector<std::string> args{"run", "a", "sh", "-c", "echo $$; read line"};
    if (foreground) {
      args.insert(args.begin() + 1, "--foreground");
    }
    ChildProcess running = start(args);
    const pid_t command = std::stoi(running.expectLine(kSoon));
    EXPECT_EQ(::getpgid(command), foreground ? ::getpgid(running.pid()) : command);
    EXPECT_EQ(finish(running).code, 1);
  }
}

TEST_F(CliTerminal, CR5_AShellsJobControlWorks) {
  OnTerminal terminal(server().uri(), {"env", "PS1=next> ", "bash", "--norc", "--noprofile", "-i"});
  // Before its prompt the shell changes the terminal's mode, and may lose what is typed.
  ASSERT_TRUE(terminal.shows("next> "));
  terminal.type(cliProgram() + " run a sh -c 'echo read''y; cat; exit 8'\n");
  ASSERT_TRUE(terminal.shows("ready"));
  // A shell that is stopped while it starts a program may hang until it is continued, so cat comes
  // first.
  terminal.type("first words\n");
  ASSERT_TRUE(terminal.shows("first words"));
  ASSERT_TRUE(terminal.shows("first words"));
  terminal.type("\x1a");
  ASSERT_TRUE(terminal.shows("Stopped"));
  ASSERT_TRUE(terminal.shows("next> "));
  EXPECT_TRUE(redis().exists("a"));
  ASSERT_TRUE(terminal.typedShows("echo shell''works\n", "shellworks"));
  ASSERT_TRUE(terminal.shows("next> "));
  terminal.type("fg\n");
  ASSERT_TRUE(terminal.shows("run a sh"));
  terminal.type("to the command\n");
  // Once by the terminal, once by cat.
  ASSERT_TRUE(terminal.shows("to the command"));
  ASSERT_TRUE(terminal.shows("to the command"));
  terminal.type("\x04");
  ASSERT_TRUE(terminal.shows("next> "));
  terminal.type("echo status=$?\n");
  EXPECT_TRUE(terminal.shows("status=8")) << terminal.all();
  ASSERT_TRUE(terminal.shows("next> "));
  terminal.type("exit 0\n");
  EXPECT_EQ(terminal.wait(), 0);
}

/// A shell with job control, and what is done with its jobs. It reads line by line, so that it
/// takes nothing that was typed for a job.
class CliJobs : public CliTerminal {
 protected:
  void begin(const std::string& command) { beginLine(cliProgram() + " run " + command); }
  void beginLine(const std::string& line) {
    shell_.emplace(server().uri(),
                   std::vector<std::string>{
                       "env", "PS1=next> ", "bash", "--norc", "--noprofile", "--noediting", "-i"});
    ASSERT_TRUE(shell().shows("next> "));
    shell().type(line + "\n");
  }
  OnTerminal& shell() { return *shell_; }
  [[nodiscard]] std::string file(std::string_view name) const { return directory_.file(name); }
  /// A command that reads from it waits for letGo().
  [[nodiscard]] std::string pipe() {
    const std::string path = file("pipe");
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    end_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    return path;
  }
  void letGo() const { EXPECT_EQ(::write(end_, "\n", 1), 1); }
  /// The shell has the terminal: it carries out a line that is typed.
  void expectShell() {
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(shell().typedShows("echo shell''works\n", "shellworks")) << shell().all();
    }
  }
  /// The job has stopped; the shell shows the line of it that it brings to the foreground.
  void bringBackStopped(std::string_view line) {
    ASSERT_TRUE(shell().typedShows("jobs\n", "Stopped")) << shell().all();
    ASSERT_TRUE(shell().shows("next> "));
    shell().type("fg\n");
    ASSERT_TRUE(shell().shows(line)) << shell().all();
  }
  void leave() {
    shell().type("exit 0\n");
    EXPECT_EQ(shell().wait(), 0) << shell().all();
  }

  ~CliJobs() override {
    if (end_ >= 0) {
      ::close(end_);
    }
  }

 private:
  const TempDir directory_;
  int end_ = -1;
  std::optional<OnTerminal> shell_;
};

TEST_F(CliJobs, CR5_AJobThatWasPutIntoTheBackgroundLeavesTheTerminalToTheShell) {
  begin("a sh -c 'echo read''y; read line <" + pipe() + "; echo ov''er'");
  ASSERT_TRUE(shell().shows("ready"));
  shell().type("\x1a");
  ASSERT_TRUE(shell().shows("Stopped"));
  ASSERT_TRUE(shell().shows("next> "));
  ASSERT_TRUE(shell().typedShows("bg\n", "&"));
  letGo();
  ASSERT_TRUE(shell().shows("over")) << shell().all();
  EXPECT_EVENTUALLY(kSoon, !redis().exists("a"));
  expectShell();
  leave();
}

TEST_F(CliJobs, CR2_AWaitCanBeSuspended) {
  occupy("a");
  begin("--wait 10m a echo r''an");
  ASSERT_EVENTUALLY(kSoon, awaited("a"));
  shell().type("\x1a");
  ASSERT_TRUE(shell().shows("Stopped"));
  ASSERT_TRUE(shell().shows("next> "));
  vacate("a");
  expectShell();
  EXPECT_FALSE(redis().exists("a"));
  shell().type("fg\n");
  ASSERT_TRUE(shell().shows("ran")) << shell().all();
  ASSERT_TRUE(shell().shows("next> "));
  leave();
}

/// A line of ours would be written over the text that is being typed at the prompt.
TEST_F(CliJobs, AWaitInTheBackgroundWritesNothing) {
  occupy("a");
  begin("--wait 10m a echo r''an &");
  ASSERT_EVENTUALLY(kSoon, awaited("a"));
  EXPECT_FALSE(shell().shows("waiting", std::chrono::milliseconds(2500)));
  shell().type("fg\n");
  EXPECT_TRUE(shell().shows("waiting")) << shell().all();
  vacate("a");
  EXPECT_TRUE(shell().shows("ran")) << shell().all();
  ASSERT_TRUE(shell().shows("next> "));
  leave();
}

TEST_F(CliJobs, CR5_AJobThatReadsInTheBackgroundStopsLikeAnyOther) {
  begin("a sh -c 'echo read''y; cat'");
  ASSERT_TRUE(shell().shows("ready"));
  shell().type("words\n");
  ASSERT_TRUE(shell().shows("words"));
  ASSERT_TRUE(shell().shows("words"));
  shell().type("\x1a");
  ASSERT_TRUE(shell().shows("Stopped"));
  ASSERT_TRUE(shell().shows("next> "));
  ASSERT_TRUE(shell().typedShows("bg\n", "&"));
  expectShell();
  bringBackStopped("run a sh");
  shell().type("to the command\n");
  ASSERT_TRUE(shell().shows("to the command"));
  ASSERT_TRUE(shell().shows("to the command")) << shell().all();
  shell().type("\x04");
  ASSERT_TRUE(shell().shows("next> "));
  leave();
}

TEST_F(CliJobs, CR5_AJobThatBeganInTheBackgroundComesToTheForeground) {
  begin("a sh -c 'read line; echo got $line' &");
  bringBackStopped("run a sh");
  shell().type("words\n");
  EXPECT_TRUE(shell().shows("got words")) << shell().all();
  ASSERT_TRUE(shell().shows("next> "));
  leave();
}

// Without a wrapper the terminal would have stopped the script, too, and the shell would know.
TEST_F(CliJobs, CR5_AScriptInTheBackgroundStopsWithItsCommand) {
  beginLine("bash -c '" + cliProgram() + " run a head -n 1; echo ov\"\"er' &");
  bringBackStopped("run a head");
  shell().type("words\n");
  // Once by the terminal, once by the command.
  ASSERT_TRUE(shell().shows("words")) << shell().all();
  ASSERT_TRUE(shell().shows("words")) << shell().all();
  EXPECT_TRUE(shell().shows("over")) << shell().all();
  ASSERT_TRUE(shell().shows("next> "));
  leave();
}

TEST_F(CliJobs, CR5_ATerminalThatWasAskedForGoesBackWithTheJob) {
  // The command has the terminal when it is ready.
  begin(
      "a sh -c 'stty -echo </dev/tty; echo read''y; read answer </dev/tty; echo got $answer' "
      "| cat");
  ASSERT_TRUE(shell().shows("ready")) << shell().all();
  shell().type("\x1a");
  ASSERT_TRUE(shell().shows("Stopped")) << shell().all();
  ASSERT_TRUE(shell().shows("next> "));
  expectShell();
  ASSERT_TRUE(shell().shows("next> "));
  shell().type("fg\n");
  ASSERT_TRUE(shell().shows("run a sh"));
  shell().type("words\n");
  EXPECT_TRUE(shell().shows("got words")) << shell().all();
  ASSERT_TRUE(shell().shows("next> "));
  leave();
}

// Its wrapper is in the background for good: the shell that began it has ended.
TEST_F(CliJobs, ACommandThatCannotHaveTheTerminalIsStoppedAndSaysSo) {
  beginLine("(" + cliProgram() + " run a sh -c 'echo $PPID >" + file("wrapper") + "; read go <" +
            pipe() + "; read line </dev/tty' &)");
  ASSERT_TRUE(shell().shows("next> "));
  letGo();
  ASSERT_TRUE(shell().shows("wants the terminal")) << shell().all();
  expectShell();
  // It is not stopped again and again.
  EXPECT_EQ(shell().all().find("wants the terminal"), shell().all().rfind("wants the terminal"));
  EXPECT_TRUE(redis().exists("a"));
  pid_t wrapper = 0;
  ASSERT_TRUE(static_cast<bool>(std::ifstream(file("wrapper")) >> wrapper));
  ASSERT_GT(wrapper, 0);
  EXPECT_EQ(::kill(wrapper, SIGTERM), 0);
  EXPECT_EVENTUALLY(kSoon, !redis().exists("a"));
  leave();
}

TEST_F(CliJobs, CR5_AKeyReachesACommandInOurGroupOnce) {
  begin(
      "--foreground a sh -c 'n=0; trap \"n=\\$((n+1))\" INT; echo read''y; "
      "while [ $n -eq 0 ]; do :; done; sleep 0.3; echo seen $n ti''mes'");
  ASSERT_TRUE(shell().shows("ready"));
  shell().type("\x03");
  EXPECT_TRUE(shell().shows("seen 1 times")) << shell().all();
  ASSERT_TRUE(shell().shows("next> "));
  leave();
}

// As ssh and sudo do for a password.
TEST_F(CliTerminal, CR5_ACommandThatAsksForTheTerminalBesideItsStreamsHasIt) {
  for (const char* const streams : {"</dev/null", "| cat"}) {
    SCOPED_TRACE(streams);
    OnTerminal terminal(
        server().uri(),
        {"bash",
         "-c",
         cliProgram() +
             " run a sh -c 'stty -echo </dev/tty; echo ready; read answer </dev/tty; "
             "stty echo </dev/tty; echo got $answer' " +
             streams + "; read next; echo then $next"});
    ASSERT_TRUE(terminal.shows("ready")) << terminal.all();
    terminal.type("words\n");
    ASSERT_TRUE(terminal.shows("got words")) << terminal.all();
    // The script has it again.
    terminal.type("more\n");
    EXPECT_TRUE(terminal.shows("then more")) << terminal.all();
    EXPECT_EQ(terminal.wait(), 0);
  }
}

// Otherwise a script would go on with its next line.
TEST_F(CliTerminal, CR5_AKeyThatEndsTheCommandEndsTheScript) {
  OnTerminal terminal(
      server().uri(),
      {"bash", "-c", cliProgram() + " run a sh -c 'echo read''y; exec sleep 60'; echo NE''XT"});
  ASSERT_TRUE(terminal.shows("ready"));
  terminal.type("\x03");
  EXPECT_EQ(terminal.wait(), 128 + SIGINT);
  EXPECT_THAT(terminal.all(), Not(HasSubstr("NEXT")));
  EXPECT_FALSE(redis().exists("a"));
}

// There is no shell that could continue it.
TEST_F(CliTerminal, CR5_NothingStopsWithoutAShell) {
  OnTerminal terminal(server().uri(),
                      {cliProgram(),
                       "run",
                       "a",
                       "sh",
                       "-c",
                       "echo ready; read first; read second; echo got $first $second"});
  ASSERT_TRUE(terminal.shows("ready"));
  terminal.type("\x1a");
  ASSERT_TRUE(terminal.typedShows("some\n", "some"));
  terminal.type("words\n");
  EXPECT_TRUE(terminal.shows("got some words")) << terminal.all();
  EXPECT_EQ(terminal.wait(), 0);
}

TEST_F(CliTerminal, CR5_NothingThatWaitsStopsWithoutAShell) {
  occupy("a");
  OnTerminal terminal(server().uri(), {cliProgram(), "run", "--wait", "60s", "a", "echo", "in"});
  ASSERT_EVENTUALLY(kSoon, awaited("a"));
  terminal.type("\x1a");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  vacate("a");
  EXPECT_EQ(terminal.wait(), 0) << terminal.all();
}

TEST_F(CliTerminal, WhoeverWaitsSeesForWhom) {
  ChildProcess holder =
      start({"run", "--label", "night shift", "a", "sh", "-c", "echo ready; read line"});
  holder.expectLine(kSoon);
  OnTerminal terminal(server().uri(), {cliProgram(), "run", "--wait", "30s", "a", "true"});
  ASSERT_TRUE(terminal.shows("for \"a\" (at most 30s): held by night shift (")) << terminal.all();
  (void)finish(holder);
  EXPECT_EQ(terminal.wait(), 0);
}

TEST_F(CliTerminal, WhoeverWaitsForSeveralSeesTheOneThatIsHeld) {
  ChildProcess holder =
      start({"run", "--label", "night shift", "b", "sh", "-c", "echo ready; read line"});
  holder.expectLine(kSoon);
  OnTerminal terminal(server().uri(),
                      {cliProgram(), "run", "--wait", "30s", "--also", "b", "a", "true"});
  ASSERT_TRUE(terminal.shows("for \"b\" (at most 30s): held by night shift (")) << terminal.all();
  (void)finish(holder);
  EXPECT_EQ(terminal.wait(), 0);
}

TEST_F(CliTerminal, NamesAreEscapedOnATerminalOnly) {
  occupy("odd\033[2Jname");
  OnTerminal terminal(server().uri(), {cliProgram(), "list", "--names"});
  EXPECT_TRUE(terminal.shows("odd\\x1b[2Jname")) << terminal.all();
  EXPECT_EQ(terminal.wait(), 0);
  EXPECT_EQ(run({"list", "--names"}).output, "odd\033[2Jname\n");
}

/// All subcommands that have colours.
TEST_F(CliTerminal, ColoursAreForTerminalsThatWantThem) {
  occupy("a");
  const auto colours = ContainsRegex("\033\\[[0-9]+m");
  const std::vector<std::vector<std::string>> subcommands{
      {"show", "a"}, {"list"}, {"top", "--frames", "1"}, {"doctor"}};
  const auto shown = [&](std::vector<std::string> environment,
                         const std::vector<std::string>& subcommand,
                         const std::vector<std::string>& options) {
    std::vector<std::string> line{"env", "-u", "NO_COLOR"};
    line.insert(line.end(), environment.begin(), environment.end());
    line.push_back(cliProgram());
    line.insert(line.end(), subcommand.begin(), subcommand.end());
    line.insert(line.end(), options.begin(), options.end());
    OnTerminal terminal(server().uri(), line);
    EXPECT_NE(terminal.wait(), -1);
    // It has said something.
    EXPECT_THAT(terminal.all(), HasSubstr("\n"));
    return terminal.all();
  };
  for (const auto& subcommand : subcommands) {
    SCOPED_TRACE(subcommand.front());
    EXPECT_THAT(shown({}, subcommand, {}), colours);
    EXPECT_THAT(shown({"NO_COLOR="}, subcommand, {}), colours) << "an empty value says nothing";
    EXPECT_THAT(shown({"NO_COLOR=1"}, subcommand, {}), Not(colours));
    EXPECT_THAT(shown({"NO_COLOR=1"}, subcommand, {"--color=always"}), colours);
    EXPECT_THAT(shown({"TERM=dumb"}, subcommand, {}), Not(colours));
    EXPECT_THAT(shown({}, subcommand, {"--color=never"}), Not(colours));
    EXPECT_THAT(run(subcommand).output, Not(colours)) << "this is no terminal";
  }
}

TEST_F(CliTerminal, AHoldInTheBackgroundLeavesTheTerminalToTheShell) {
  OnTerminal terminal(server().uri(), {"env", "PS1=next> ", "bash", "--norc", "--noprofile", "-i"});
  ASSERT_TRUE(terminal.shows("next> "));
  terminal.type(cliProgram() + " hold a &\n");
  ASSERT_TRUE(terminal.shows("held a owner "));
  // Each key wakes up whoever waits for input of the terminal.
  ASSERT_TRUE(terminal.typedShows("echo shell''works\n", "shellworks"));
  EXPECT_TRUE(terminal.typedShows("jobs\n", "Running")) << terminal.all();
  EXPECT_THAT(terminal.all(), Not(HasSubstr("Stopped")));
  EXPECT_TRUE(redis().exists("a"));
  // In the foreground the end of input is for it.
  ASSERT_TRUE(terminal.shows("next> "));
  terminal.type("fg\n");
  ASSERT_TRUE(terminal.shows("hold a"));
  terminal.type("\x04");
  EXPECT_EVENTUALLY(kSoon, !redis().exists("a"));
  ASSERT_TRUE(terminal.typedShows("echo status''=$?\n", "status=0")) << terminal.all();
  ASSERT_TRUE(terminal.shows("next> "));
  terminal.type("exit 0\n");
  EXPECT_EQ(terminal.wait(), 0);
}

TEST_F(CliTerminal, TopThatIsSuspendedLeavesTheScreen) {
  occupy("locked");
  OnTerminal terminal(server().uri(), {"env", "PS1=next> ", "bash", "--norc", "--noprofile", "-i"});
  ASSERT_TRUE(terminal.shows("next> "));
  terminal.type(cliProgram() + " top --interval 100ms\n");
  ASSERT_TRUE(terminal.shows("1 held"));
  terminal.type("\x1a");
  ASSERT_TRUE(terminal.shows("\033[?25h\033[?1049l")) << terminal.all();
  ASSERT_TRUE(terminal.shows("Stopped"));
  ASSERT_TRUE(terminal.shows("next> "));
  ASSERT_TRUE(terminal.typedShows("echo shell''works\n", "shellworks"));
  ASSERT_TRUE(terminal.shows("next> "));
  terminal.type("fg\n");
  ASSERT_TRUE(terminal.shows("\033[?1049h")) << terminal.all();
  ASSERT_TRUE(terminal.shows("1 held"));
  terminal.type("q");
  ASSERT_TRUE(terminal.shows("\033[?1049l")) << terminal.all();
  ASSERT_TRUE(terminal.shows("next> "));
  terminal.type("exit 0\n");
  EXPECT_EQ(terminal.wait(), 0);
}

TEST_F(CliTerminal, TopFitsTheTerminal) {
  occupy("locked");
  OnTerminal terminal(server().uri(), {cliProgram(), "top", "--interval", "100ms"});
  ASSERT_TRUE(terminal.shows("1 held"));
  ASSERT_TRUE(terminal.shows("locked"));
  terminal.type("q");
  EXPECT_EQ(terminal.wait(), 0);
  // The screen is as it was.
  EXPECT_THAT(terminal.all(), HasSubstr("\033[?1049l"));
}

}  // namespace
}  // namespace rlock::test
