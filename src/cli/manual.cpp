// SPDX-License-Identifier: Apache-2.0

// The manual page rlock(1), and the subcommand that prints it. Synopses, subcommands and options
// come from the tables of arguments.cpp, so that a new one is in the page at once; the other
// sections are text in roff that stands here. It is made on the main thread, by `rlock man`: the
// build runs that for the page that is installed.
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/documents.hpp"
#include <rlock/version.hpp>

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace rlock::cli {

namespace {

// A line that begins with a dot or an apostrophe is a request, and a backslash an escape.
std::string roff(std::string_view text) {
  std::string result;
  bool lineBegins = true;
  for (const char c : text) {
    if (lineBegins && (c == '.' || c == '\'')) {
      result += "\\&";
    }
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
    lineBegins = c == '\n';
  }
  return result;
}

// Text whose indented lines are examples, to be shown as they are.
std::string paragraphs(std::string_view text) {
  std::string result;
  bool verbatim = false;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const bool example = line.starts_with("  ");
    if (example != verbatim) {
      result += example ? ".PP\n.nf\n" : ".fi\n";
      verbatim = example;
    }
    result += line.empty() ? std::string(".PP\n") : roff(line) + "\n";
  }
  return result + (verbatim ? ".fi\n" : "");
}

std::string optionText(const OptionEntry& option) {
  std::string text = ".TP\n.B ";
  text += roff(fmt::format("{}", fmt::join(option.names, ", ")));
  if (!option.argument.empty()) {
    text += " \\fI" + roff(option.argument) + "\\fR";
  }
  return text + "\n" + roff(option.description) + ".\n";
}

constexpr std::string_view kDescription = R"(.SH DESCRIPTION
.B rlock
holds locks in a Redis or Valkey server, of the kinds that the library of the same name and Redisson have,
while a command runs, and shows who holds what.
.PP
A lock is a lease: the server forgets it when it is not renewed, 30 seconds after its holder was last heard
of.
.B rlock
renews it while the command runs.
)";

constexpr std::string_view kRunning = R"(.SH RUNNING A COMMAND
.SS Streams, terminal and signals
Standard streams and other descriptors that were open are the command's; of
.BR rlock 's
own it inherits none. With
.B \-\-no\-stdin
its input is empty. The command gets a process group of its own, which becomes the foreground of the
terminal whenever that of
.B rlock
is, if its standard input is that terminal and its standard output no pipe. A key that ends the command ends
the script around
.BR rlock ,
too. A command that has not got the terminal, and asks for it, gets it then if the group of
.B rlock
is its foreground;
.B \-\-foreground
lets it share the terminal with the other parts of a pipeline. SIGTERM, SIGINT, SIGHUP,
SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT and SIGWINCH are passed on to that group. A signal that was
ignored at the beginning stays ignored. While
.B rlock
waits for the lock, the first four end it, and nothing is held then.
.SS Loss of the lock
When the lock cannot be renewed, or its longest time is over, the command gets SIGTERM so early that SIGKILL
lands, if it is needed, before another owner can have the lock. When the server itself has given the lock
away (it was freed by force, deleted, or lost in a failover), the command's group is killed at once. Until
.B rlock
hears of that, which takes a third of the lease at most, two commands may run: protect what must not
happen twice by a fencing token
.RB ( \-\-fenced ).
.PP
If
.B rlock
itself is killed, the kernel sends SIGTERM to the command, and a small process named
.I lock\-guardian
ends its whole group. It also kills it when
.B rlock
is stopped for longer than the lease lasts: a job that is to be suspended needs a long
.BR \-\-lease .
When that process is killed itself,
.B rlock
warns of it. A process that has left the group, as daemons do, is not reached, nor is one that has become another
user's, as those of sudo:
.B rlock
says that it runs on without the lock.
.PP
Within the command of another
.B rlock run
the command is killed at once when its
.B rlock
is killed, for the outer lock may be another's next.
.SS A command that takes little time
The lock is given back when the command ends. With
.B \-\-min\-hold
.B rlock
keeps it until so much time has passed since it was obtained, unless a signal asks it, or has asked the
command, to end.
.SS Environment of the command
.TP
.B RLOCK_NAME
The lock's name.
.TP
.B RLOCK_TOKEN
With
.B \-\-fenced
the fencing token, a number that rises with each hold; otherwise as RLOCK_OWNER.
.TP
.B RLOCK_OWNER
The owner as the server knows it, or the id of a permit.
.TP
.B RLOCK_DEADLINE_MS
The time, in milliseconds since 1970, until which the hold is valid unless it is renewed, as of the
beginning. With
.B \-\-max\-hold
shorter than the lease it is final.
.TP
.B RLOCK_LEASE_MS
How long the hold is valid after each renewal.
.TP
.B RLOCK_FD
With
.B \-\-loss\-fd
the number of a descriptor whose input ends as soon as the lock is not to be relied on any more.
.SS Events
With
.B \-\-events
one JSON object a line is written for each event: held, started, ending, lost, ended, released and exit. The
last one says in
.I by
whether the exit status is the command's. What the descriptor does not take at once is dropped.
)";

constexpr std::string_view kEnd = R"(.SH EXIT STATUS
The command's; 128+n if a signal n ended it, or
.B rlock
while it waited. Its own are:
.TP
.B 1
The answer is no:
.B show
or
.B unlock
of a lock that is free,
.B doctor
that has found a fault.
.TP
.B 64
The command line is wrong.
.TP
.B 69
No server could be reached.
.TP
.B 70
The system refused something.
.TP
.B 75
Another owner held the lock all the time
.RB ( \-E
chooses another number).
.TP
.B 76
The server cannot do what is needed: it takes no writes, is no Redis, or has something else under the name.
.TP
.B 77
The password is wrong, or access rules forbid something.
.TP
.B 78
The configuration file is wrong, or
.B \-\-semaphore
differs from that of others.
.TP
.B 79
The lock was lost or its time was over before the command had ended, in which case it was ended, or before
.B \-\-min\-hold
was over.
.TP
.B 126, 127
The command cannot be executed, or was not found.
.SH ENVIRONMENT
.TP
.B RLOCK_URI
The server, unless
.B \-\-uri
names one.
.TP
.B RLOCK_CONFIG
The configuration file, unless
.B \-\-config
names one.
.TP
.B XDG_CONFIG_HOME
The directory in which the configuration file is
.IR rlock/config ,
instead of
.IR ~/.config ,
where none is named.
.TP
.B NO_COLOR
If it is set, there are no colours.
.SH FILES
.TP
.I ~/.config/rlock/config
Lines of the form
.IR "key = value" ,
with the keys
.BR uri ,
.BR wait ,
.BR lease ,
.BR kill\-after ,
.B label
and
.BR color :
defaults of the options of these names.
)";

}  // namespace

std::string manualPage() {
  std::string text = fmt::format(
      ".\\\" SPDX-License-Identifier: Apache-2.0\n.TH RLOCK 1 \"\" \"rlock {}\" \"User Commands\"\n"
      ".SH NAME\nrlock \\- distributed locks on Redis, for the command line\n.SH SYNOPSIS\n.nf\n",
      RLOCK_VERSION_STRING);
  const auto table = subcommandTable();
  for (const SubcommandEntry& entry : table) {
    text += roff(entry.synopsis) + "\n";
  }
  text += ".fi\n";
  text += kDescription;
  text += ".SH SUBCOMMANDS\n";
  const auto common = commonOptionTable();
  for (const SubcommandEntry& entry : table) {
    text += fmt::format(".SS {}\n{}.\n.PP\n{}",
                        roff(entry.name),
                        roff(entry.description),
                        paragraphs(entry.details));
    for (const OptionEntry& option : entry.options) {
      if (option.names.back() != "--help") {
        text += optionText(option);
      }
    }
  }
  text += ".SH COMMON OPTIONS\n";
  for (const OptionEntry& option : common) {
    text += optionText(option);
  }
  text += kRunning;
  text += kEnd;
  return text;
}

int manCommand(const Arguments&) {
  fmt::print("{}", manualPage());
  return 0;
}

}  // namespace rlock::cli
