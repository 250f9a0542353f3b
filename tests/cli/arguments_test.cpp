// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments.hpp"

#include "cli/settings.hpp"
#include "support/temp_dir.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace rlock::cli {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class CliArguments : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
    ::unsetenv("RLOCK_CONFIG");
    ::unsetenv("RLOCK_URI");
  }
  static Arguments parsed(const std::vector<std::string>& args) {
    auto result = parseArguments(args);
    EXPECT_TRUE(result.arguments) << result.ended.error;
    return result.arguments.value_or(Arguments());
  }
  static Ended refused(const std::vector<std::string>& args) {
    auto result = parseArguments(args);
    EXPECT_FALSE(result.arguments);
    return result.ended;
  }
  /// With a configuration file of that text.
  std::vector<std::string> configured(const std::string& text, std::vector<std::string> args) {
    const std::string path = directory_.file("config");
    std::ofstream(path) << text;
    args.insert(args.begin(), {"--config", path});
    return args;
  }

 private:
  test::TempDir directory_;
};

TEST_F(CliArguments, EveryNameIsANameBehindTwoDashes) {
  const std::string large(10'240, 'x');
  for (const char* const subcommand : {"show", "wait", "hold", "doctor"}) {
    for (const std::string& name : {std::string("-x"),
                                    std::string("--json"),
                                    std::string("++"),
                                    std::string("+1"),
                                    std::string("-"),
                                    std::string("a\nb"),
                                    std::string("\xff\xfe"),
                                    large}) {
      EXPECT_EQ(parsed({subcommand, "--", name}).lock.name, name) << subcommand;
    }
  }
}

TEST_F(CliArguments, TwoPlusSignsAreAName) {
  EXPECT_EQ(parsed({"show", "++"}).lock.name, "++");
  EXPECT_TRUE(parsed({"show", "++", "--json"}).json);
  EXPECT_EQ(parsed({"-u", "redis://one:1", "unlock", "++", "--force"}).lock.name, "++");
  EXPECT_EQ(parsed({"list", "++"}).pattern, "++");
  EXPECT_EQ(parsed({"run", "++", "true"}).lock.name, "++");
  const Arguments labelled = parsed({"hold", "--label", "++", "name"});
  EXPECT_EQ(labelled.lock.label, "++");
  EXPECT_EQ(labelled.lock.name, "name");
}

TEST_F(CliArguments, AnOperandTooManyIsNamed) {
  for (const char* const subcommand : {"show", "wait", "hold", "list", "doctor"}) {
    const Ended ended = refused({subcommand, "-x"});
    EXPECT_EQ(ended.code, number(ExitCode::usage));
    EXPECT_THAT(ended.error,
                HasSubstr("unknown option \"-x\"; an operand that begins with a dash"));
  }
  EXPECT_THAT(refused({"run", "-x", "true"}).error, HasSubstr("unknown option \"-x\""));
  EXPECT_THAT(refused({"show", "a", "b\n\x1b"}).error,
              HasSubstr("unexpected argument \"b\\n\\x1b\""));
  EXPECT_THAT(refused({"show"}).error, HasSubstr("NAME is required"));
}

TEST_F(CliArguments, TheFileIsInTheFolderOfTheUser) {
  const test::TempDir home;
  std::filesystem::create_directories(home.file(".config/rlock"));
  std::ofstream(home.file(".config/rlock/config")) << "uri = redis://one:1\n";
  const char* const before = std::getenv("HOME");
  const std::string kept = before == nullptr ? "" : before;
  ::unsetenv("XDG_CONFIG_HOME");
  ::setenv("HOME", home.path().c_str(), 1);
  EXPECT_EQ(parsed({"show", "a"}).uri, "redis://one:1");
  ::setenv("HOME", kept.c_str(), 1);
}

TEST_F(CliArguments, OptionsEndAtTheName) {
  const Arguments arguments =
      parsed({"run", "-vw", "10s", "--lease=2m", "a", "cmd", "-w", "x", "--", "-h"});
  EXPECT_EQ(arguments.lock.name, "a");
  EXPECT_THAT(arguments.command.argv, ElementsAre("cmd", "-w", "x", "--", "-h"));
  EXPECT_EQ(arguments.lock.wait, Duration(std::chrono::seconds(10)));
  EXPECT_EQ(arguments.lock.lease, Duration(std::chrono::minutes(2)));
  EXPECT_TRUE(arguments.verbose);
}

TEST_F(CliArguments, AValueMayBeEmpty) {
  for (const std::vector<std::string>& label :
       {std::vector<std::string>{"--label="}, std::vector<std::string>{"--label", ""}}) {
    std::vector<std::string> args{"run"};
    args.insert(args.end(), label.begin(), label.end());
    args.insert(args.end(), {"a", "cmd", "--label="});
    const Arguments arguments = parsed(args);
    EXPECT_EQ(arguments.lock.label, "");
    EXPECT_EQ(arguments.lock.name, "a");
    EXPECT_THAT(arguments.command.argv, ElementsAre("cmd", "--label="));
  }
  EXPECT_THAT(refused({"run", "--lease=", "a", "cmd"}).error, HasSubstr("--lease"));
}

TEST_F(CliArguments, DashesBetweenNameAndCommandBelongToUs) {
  EXPECT_THAT(parsed({"run", "a", "--", "-x"}).command.argv, ElementsAre("-x"));
  EXPECT_THAT(parsed({"run", "--", "-a", "--", "x"}).command.argv, ElementsAre("x"));
  EXPECT_EQ(parsed({"run", "--", "-a", "--", "x"}).lock.name, "-a");
}

TEST_F(CliArguments, ANameMayBeThatOfASubcommand) {
  EXPECT_EQ(parsed({"run", "--label", "try", "run", "run"}).lock.name, "run");
}

TEST_F(CliArguments, TryDoesNotWait) {
  EXPECT_EQ(parsed({"try", "a", "x"}).lock.wait, Duration::zero());
  EXPECT_EQ(parsed({"run", "-n", "a", "x"}).lock.wait, Duration::zero());
  EXPECT_FALSE(parsed({"run", "a", "x"}).lock.wait);
}

TEST_F(CliArguments, SeveralServers) {
  for (const std::vector<std::string>& red :
       std::vector<std::vector<std::string>>{{"--red", "redis://a,redis://b"},
                                             {"--red=redis://a,redis://b"},
                                             {"--red", "redis://a", "--red", "redis://b"}}) {
    for (const char* subcommand : {"run", "try", "hold"}) {
      std::vector<std::string> args{subcommand};
      args.insert(args.end(), red.begin(), red.end());
      // Options may follow the name of what is held, and a command the name of what it is run for.
      const bool hold = args.front() == "hold";
      args.emplace_back("n");
      args.emplace_back(hold ? "--json" : "x");
      const Arguments arguments = parsed(args);
      EXPECT_THAT(arguments.lock.red, ElementsAre("redis://a", "redis://b"))
          << ::testing::PrintToString(args);
      EXPECT_EQ(arguments.lock.name, "n") << ::testing::PrintToString(args);
      EXPECT_EQ(arguments.json, hold);
    }
  }
}

TEST_F(CliArguments, FurtherLocks) {
  const Arguments arguments =
      parsed({"run", "--also", "b,c", "--also=d", "--read", "a", "x", "--also", "e"});
  EXPECT_EQ(arguments.lock.name, "a");
  EXPECT_THAT(arguments.lock.also, ElementsAre("b,c", "d"));
  EXPECT_THAT(arguments.command.argv, ElementsAre("x", "--also", "e"));
  for (const char* single : {"--fenced", "--semaphore=2", "--red=redis://a"}) {
    EXPECT_EQ(refused({"run", "--also", "b", single, "a", "x"}).code, 64) << single;
  }
  // Options may follow the name of what is held.
  const Arguments held = parsed({"hold", "--also", "b", "a", "--json"});
  EXPECT_EQ(held.lock.name, "a");
  EXPECT_THAT(held.lock.also, ElementsAre("b"));
  EXPECT_TRUE(held.json);
}

TEST_F(CliArguments, Mistakes) {
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {},
           {"nonsense"},
           {"run"},
           {"run", "a"},
           {"run", "", "x"},
           {"run", "--nonsense", "a", "x"},
           {"run", "--wait", "soon", "a", "x"},
           {"run", "--wait"},
           {"run", "-n", "-w", "1s", "a", "x"},
           {"run", "--semaphore", "0", "a", "x"},
           {"run", "--fair", "--read", "a", "x"},
           {"run", "--lease", "1ms", "a", "x"},
           {"run", "--max-hold", "1ms", "a", "x"},
           {"run", "--max-hold", "1s", "--min-hold", "2s", "a", "x"},
           {"show"},
           {"unlock", "a"},
           {"run", "--lease", "forever", "a", "x"},
           {"bench", "--duration", "forever"},
           {"list", "--color", "purple"},
           {"completion", "tcsh"}}) {
    const Ended ended = refused(args);
    EXPECT_EQ(ended.code, 64) << ::testing::PrintToString(args);
    EXPECT_THAT(ended.error, HasSubstr("rlock: "));
  }
}

TEST_F(CliArguments, HelpIsNoMistake) {
  EXPECT_EQ(refused({"--help"}).code, 0);
  const Ended help = refused({"run", "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.output, HasSubstr("rlock run [OPTIONS] NAME"));
  EXPECT_THAT(help.output, HasSubstr("Examples:"));
  // An option that is common to all, and not repeated in each help, must be found.
  EXPECT_THAT(refused({"doctor", "--help"}).output, HasSubstr("--uri"));
  EXPECT_THAT(refused({"--version"}).output, HasSubstr("rlock "));
}

TEST_F(CliArguments, TheUriComesFromTheNearestPlace) {
  EXPECT_EQ(parsed({"list"}).uri, "redis://127.0.0.1:6379");
  ::setenv("RLOCK_URI", "redis://b", 1);
  EXPECT_EQ(parsed({"list"}).uri, "redis://b");
  EXPECT_EQ(parsed({"list", "-u", "redis://c"}).uri, "redis://c");
  EXPECT_EQ(parsed({"-u", "redis://c", "list"}).uri, "redis://c");
}

constexpr const char* kEveryKey =
    "uri = redis://file\nwait = 2s\nlease = 20s\nkill-after = 3s\nlabel = web1\ncolor = never\n";

TEST_F(CliArguments, EveryKeyOfTheFileTakesEffect) {
  const Arguments arguments = parsed(configured(kEveryKey, {"run", "a", "x"}));
  EXPECT_EQ(arguments.uri, "redis://file");
  EXPECT_EQ(arguments.lock.wait, Duration(milliseconds(2000)));
  EXPECT_EQ(arguments.lock.lease, Duration(milliseconds(20'000)));
  EXPECT_EQ(arguments.command.killAfter, milliseconds(3000));
  EXPECT_EQ(arguments.lock.label, "web1");
  EXPECT_EQ(arguments.color, ColorMode::never);
  EXPECT_EQ(parsed(configured(kEveryKey, {"try", "a", "x"})).lock.wait, Duration::zero());
}

TEST_F(CliArguments, TheCommandLineIsMoreThanTheFile) {
  // Two of these values are the defaults, and were said all the same.
  const Arguments arguments = parsed(configured(kEveryKey,
                                                {"run",
                                                 "--uri",
                                                 "redis://line",
                                                 "--wait",
                                                 "1s",
                                                 "--lease",
                                                 "10s",
                                                 "--kill-after",
                                                 "5s",
                                                 "--label",
                                                 "line",
                                                 "--color",
                                                 "auto",
                                                 "a",
                                                 "x"}));
  EXPECT_EQ(arguments.uri, "redis://line");
  EXPECT_EQ(arguments.lock.wait, Duration(milliseconds(1000)));
  EXPECT_EQ(arguments.lock.lease, Duration(milliseconds(10'000)));
  EXPECT_EQ(arguments.command.killAfter, milliseconds(5000));
  EXPECT_EQ(arguments.lock.label, "line");
  EXPECT_EQ(arguments.color, ColorMode::automatic);
  // The command's name again.
  EXPECT_EQ(parsed(configured(kEveryKey, {"run", "--label", "", "a", "x"})).lock.label, "");
}

TEST_F(CliArguments, AValueOfTheFileThatCannotBeUsedIsTheFilesFault) {
  for (const std::string line : {"wait = soon",
                                 "lease = soon",
                                 "lease = 1ms",
                                 "lease = forever",
                                 "kill-after = soon",
                                 "color = purple"}) {
    const Ended ended = refused(configured(line + "\n", {"run", "a", "x"}));
    EXPECT_EQ(ended.code, 78) << line;
    EXPECT_THAT(ended.error, HasSubstr(line)) << line;
    EXPECT_THAT(ended.error, Not(HasSubstr("--"))) << line;
  }
  EXPECT_EQ(refused(configured("uri = nonsense\n", {"run", "a", "x"})).code, 78);
  EXPECT_EQ(parsed(configured("uri = nonsense\n", {"doctor"})).uri, "nonsense");
  // The command line's value is used instead.
  EXPECT_EQ(parsed(configured("lease = 1ms\n", {"run", "--lease", "10s", "a", "x"})).lock.lease,
            Duration(milliseconds(10'000)));
}

TEST(CliSettings, ReadsLines) {
  const Settings settings = parseSettings("# comment\n\n uri = redis://x?a=b \r\nlease=1m", "f");
  EXPECT_EQ(settings.uri, "redis://x?a=b");
  EXPECT_EQ(settings.lease, "1m");
  EXPECT_FALSE(settings.wait);
}

TEST(CliSettings, SaysWhereAMistakeIs) {
  const auto message = [](const char* text) {
    try {
      (void)parseSettings(text, "f");
    } catch (const SettingsError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message("uri = a\nurl = b\n"), HasSubstr("f:2: unknown key \"url\""));
  EXPECT_THAT(message("uri = a\nuri = b\n"), HasSubstr("f:2: uri is given twice"));
  EXPECT_THAT(message("nonsense"), HasSubstr("f:1:"));
}

}  // namespace
}  // namespace rlock::cli
