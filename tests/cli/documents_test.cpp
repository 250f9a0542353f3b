// SPDX-License-Identifier: Apache-2.0
// Completions and the manual say what the program can do, and nothing else says it.
#include "cli/documents.hpp"

#include "cli/arguments.hpp"
#include "support/temp_dir.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

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
  EXPECT_THAT(manual, HasSubstr(".B RLOCK_DEADLINE_MS"));
}

TEST(CliDocuments, BashCompletes) {
  if (std::system("command -v bash >/dev/null") != 0) {
    GTEST_SKIP() << "there is no bash";
  }
  const test::TempDir directory;
  std::ofstream(directory.file("script")) << completionScript("bash") << R"sh(
complete_at() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _rlock; echo "${COMPREPLY[@]}"; }
rlock() { :; }
timeout() { echo lock:one lock:two; }
complete_at rlock unl
complete_at rlock run --max
complete_at rlock unlock ""
complete_at rlock run -w 10s lock:
complete_at rlock completion z
)sh";
  const std::string command = "bash " + directory.file("script") + " > " + directory.file("out");
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::ifstream out(directory.file("out"));
  const std::string text((std::istreambuf_iterator<char>(out)), {});
  EXPECT_EQ(text, "unlock\n--max-hold\nlock:one lock:two\nlock:one lock:two\nzsh\n");
}

}  // namespace
}  // namespace rlock::cli
