// SPDX-License-Identifier: Apache-2.0
// Completions and the manual say what the program can do, and nothing else says it.
#include "cli/documents.hpp"

#include "cli/arguments.hpp"
#include "support/temp_dir.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

namespace rlock::cli {
namespace {

using ::testing::HasSubstr;

TEST(CliDocuments, NameEveryOption) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = completionScript(shell);
    for (const SubcommandEntry& entry : subcommandTable()) {
      EXPECT_THAT(script, HasSubstr(entry.name)) << shell;
      for (const OptionEntry& option : entry.options) {
        const std::string name = option.names.back();
        EXPECT_THAT(script, HasSubstr(std::string(shell) == "fish" ? "-l " + name.substr(2) : name))
            << shell;
      }
    }
  }
  const std::string manual = manualPage();
  for (const SubcommandEntry& entry : subcommandTable()) {
    EXPECT_THAT(manual, HasSubstr(".SS " + entry.name));
  }
  EXPECT_THAT(manual, HasSubstr("\\-\\-max\\-hold"));
  for (const char* variable :
       {"RLOCK_DEADLINE_MS", "RLOCK_FD", "RLOCK_URI", "RLOCK_CONFIG", "XDG_CONFIG_HOME"}) {
    EXPECT_THAT(manual, HasSubstr(std::string(".B ") + variable + "\n"));
  }
  EXPECT_THAT(manual, HasSubstr(".B unlock\nof a lock that is free"));
}

bool installed(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null").c_str()) == 0;
}

/// The complaints of a program about a file of this text.
std::string faults(const std::string& text, const std::string& command) {
  const test::TempDir directory;
  const std::string file = directory.file("rlock");
  std::ofstream(file) << text;
  const int status = std::system((command + " " + file + " >" + file + ".out 2>&1").c_str());
  std::ifstream out(file + ".out");
  const std::string said((std::istreambuf_iterator<char>(out)), {});
  return status == 0 ? said : said + "status " + std::to_string(status);
}

TEST(CliDocuments, TheShellsReadTheirCompletions) {
  int missing = 0;
  for (const char* shell : {"bash", "zsh", "fish"}) {
    if (!installed(shell)) {
      std::cerr << "NOT CHECKED: there is no " << shell << "\n";
      ++missing;
      continue;
    }
    const std::string command = std::string(shell) + " -n";
    EXPECT_EQ(faults(completionScript(shell), command), "") << shell;
    // That it would find a mistake.
    EXPECT_NE(faults(completionScript(shell) + "\nif true\n", command), "") << shell;
  }
  if (missing > 0) {
    GTEST_SKIP() << missing << " shells are not installed; cmake/install_packages.sh shells";
  }
}

TEST(CliDocuments, TheManualPageIsWellFormed) {
  if (!installed("mandoc")) {
    GTEST_SKIP() << "there is no mandoc; cmake/install_packages.sh shells";
  }
  const std::string command = "mandoc -T lint -W warning";
  // The page has no date, so that each build of a version makes the same one; here that is no
  // fault.
  std::string page = manualPage();
  const std::size_t date = page.find("\"\"", page.find(".TH "));
  ASSERT_NE(date, std::string::npos);
  page.insert(date + 1, "2026-01-31");
  EXPECT_EQ(faults(page, command), "");
  EXPECT_NE(faults(page + ".nosuchmacro\n", command), "");
}

/// The output of bash for these lines, which may call `complete_at` with the words of a command
/// line as bash breaks them; the last one is completed. The lines are executed in the directory.
std::string completedByBash(const test::TempDir& directory, const std::string& lines) {
  std::ofstream(directory.file("script")) << completionScript("bash") << R"sh(
complete_at() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _rlock; echo "${COMPREPLY[@]}"; }
rlock() { :; }
timeout() { printf '%s\n' lock:one lock:two; }
COMP_WORDBREAKS=$' \t\n"\'@><=;|&(:'
)sh" << lines;
  const std::string command = "cd " + directory.path().string() + " && bash script > out 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::ifstream out(directory.file("out"));
  std::string said((std::istreambuf_iterator<char>(out)), {});
  return said;
}

TEST(CliDocuments, BashCompletes) {
  if (!installed("bash")) {
    GTEST_SKIP() << "there is no bash";
  }
  const test::TempDir directory;
  const std::string lines = R"sh(
complete_at rlock unl
complete_at rlock run --max
complete_at rlock unlock ""
complete_at rlock run -w 10s lock:
complete_at rlock completion z
)sh";
  EXPECT_EQ(completedByBash(directory, lines),
            "unlock\n--max-hold\nlock:one lock:two\nlock:one lock:two\nzsh\n");
}

TEST(CliDocuments, BashCompletesWordsThatItBreaks) {
  if (!installed("bash")) {
    GTEST_SKIP() << "there is no bash";
  }
  const test::TempDir directory;
  // Bash replaces what is behind the last break, or from an @ on.
  const std::string lines = R"sh(
_command_offset() { COMPREPLY=("offset $1"); }
complete_at rlock unlock --force lock : o
complete_at rlock unlock --force lock :
complete_at rlock run --uri redis : //h : 6379 lock : t
complete_at rlock run --uri = redis : //u @ h lock : t
complete_at rlock run lock : one make al
COMP_LINE='rlock run lock : al' complete_at rlock run lock : al
timeout() { echo jobs@home; }
complete_at rlock show jobs @ h
COMP_WORDBREAKS=${COMP_WORDBREAKS//[:@]/}
complete_at rlock show jobs@h
timeout() { echo :odd; }
complete_at rlock show :
)sh";
  EXPECT_EQ(completedByBash(directory, lines),
            "one\none two\ntwo\ntwo\noffset 5\noffset 3\n@home\njobs@home\n:odd\n");
}

TEST(CliDocuments, BashTakesNamesForData) {
  if (!installed("bash")) {
    GTEST_SKIP() << "there is no bash";
  }
  const test::TempDir directory;
  // The words that are offered, read by a shell, are the names again.
  const std::string names = R"sh($(touch${IFS}run)
`touch run`
$HOME ' " { * a b
)sh";
  std::ofstream(directory.file("names")) << names << "lock\n";
  const std::string lines = R"sh(
timeout() { cat names; }
complete_at rlock show "" >/dev/null
eval "printf '%s\n' ${COMPREPLY[*]}"
complete_at rlock show "'l"
complete_at rlock show "'$"
)sh";
  EXPECT_EQ(completedByBash(directory, lines), names + "lock\nlock\n\n");
  EXPECT_FALSE(std::filesystem::exists(directory.file("run")));
}

}  // namespace
}  // namespace rlock::cli
