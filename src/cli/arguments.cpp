// SPDX-License-Identifier: Apache-2.0

// The command line of the program: its options and their limits, kept in CLI11 by the Parser.
// main() calls parseArguments() once, before there is a second thread. The manual and the
// completions are made from the same options, by subcommandTable() and commonOptionTable().
//
// CLI11 sees only the arguments up to the lock's name for `run` and `try`: the rest is the
// command's, word by word. Around it are the functions that find that place, and the ones that put
// the arguments in a form that CLI11 reads as other programs would.
#include "cli/arguments.hpp"

#include "cli/duration_text.hpp"
#include "cli/settings.hpp"
#include "cli/subcommand_words.hpp"
#include <rlock/error.hpp>
#include <rlock/options.hpp>
#include <rlock/version.hpp>

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <utility>

namespace rlock::cli {

namespace {

constexpr std::string_view kDefaultUri = "redis://127.0.0.1:6379";

// Without the checks that CLI11 adds to the name of a type.
std::string argumentOf(const CLI::Option& option) {
  if (option.get_items_expected_max() <= 0) {
    return {};
  }
  const std::string type = option.get_type_name();
  return type.substr(0, type.find(':'));
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string argument = argumentOf(*option);
    return argument.empty() ? argument : " " + argument;
  }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    for (const SubcommandWords& words : kSubcommands) {
      if (words.name == app->get_name()) {
        return fmt::format("Usage: {}\n", words.synopsis);
      }
    }
    return fmt::format("Usage: {} SUBCOMMAND [OPTIONS] ...\n", name.empty() ? "rlock" : name);
  }
};

Duration readDuration(const std::string& option, const std::string& text) {
  const auto parsed = parseDuration(text);
  if (!parsed) {
    throw CLI::ValidationError(
        option, fmt::format("\"{}\" is no length of time such as 500ms, 10s or 1h30m", text));
  }
  return *parsed;
}

constexpr std::chrono::hours kYear(24 * 365);

bool usableLease(Duration lease) {
  return lease >= std::chrono::milliseconds(100) && lease <= kYear;
}

/// The options as CLI11 keeps them, bound to an Arguments.
///
/// A Parser reads one command line: CLI11 writes into its members, so it stays where it was made.
/// The kinds of lock exclude each other, so at most one of them is set afterwards. applySettings()
/// comes after that, and after noWait() has been heeded: it fills only what is still empty. Where a
/// default looks like a value that was given, killAfterGiven_, labelGiven_ and colorGiven_ tell the
/// two apart. A mistake is thrown, as CLI::ParseError or, for the file, as SettingsError;
/// parseArguments() makes an Ended of it. The tables for the manual and the completions only read
/// the options.
///
/// **Thread safety:** One thread, which is the main thread before any other is started.
class Parser {
 public:
  Parser() : app_("Distributed locks on Redis, for the command line", "rlock") {
    app_.formatter(std::make_shared<HelpFormatter>());
    app_.get_formatter()->column_width(34);
    app_.set_help_flag("-h,--help", "Show this help");
    app_.set_version_flag("--version", fmt::format("rlock {}", version()), "Show the version");
    app_.footer(std::string(kFooter));
    app_.require_subcommand(1);
    addCommon(app_);
    for (const SubcommandWords& words : kSubcommands) {
      CLI::App* const sub =
          app_.add_subcommand(std::string(words.name), std::string(words.description));
      sub->footer(fmt::format("{}{}", words.details, kSubcommandFooter));
      sub->fallthrough();
      if (words.name == "man") {
        sub->group("");
      }
    }
    addLockOptions("run");
    addLockOptions("try");
    addLockOptions("hold");
    addRunOptions("run");
    addRunOptions("try");
    addOthers();
  }

  CLI::App& app() { return app_; }
  Arguments& arguments() { return arguments_; }
  const std::optional<std::string>& configPath() const { return configPath_; }
  bool noWait() const { return noWait_; }

  // Options of the command line are more than the file's.
  void applySettings(const Settings& settings) {
    if (arguments_.uri.empty()) {
      const char* const environment = std::getenv("RLOCK_URI");
      if (environment != nullptr && *environment != '\0') {
        arguments_.uri = environment;
      } else {
        arguments_.uri = settings.uri ? settingUri(*settings.uri) : std::string(kDefaultUri);
      }
    }
    LockChoice& lock = arguments_.lock;
    if (!lock.wait && settings.wait) {
      lock.wait = settingDuration("wait", *settings.wait);
    }
    if (!lock.lease && settings.lease) {
      lock.lease = settingDuration("lease", *settings.lease);
      if (!usableLease(*lock.lease)) {
        throw SettingsError(fmt::format("lease = {} in the configuration file: from 100ms to 365d",
                                        *settings.lease));
      }
    }
    if (!killAfterGiven_ && settings.killAfter) {
      arguments_.command.killAfter =
          settingDuration("kill-after", *settings.killAfter).ceilMilliseconds();
    }
    if (!labelGiven_ && settings.label) {
      lock.label = *settings.label;
    }
    if (!colorGiven_ && settings.color) {
      const auto modes = colorModes();
      const auto mode = modes.find(*settings.color);
      if (mode == modes.end()) {
        throw SettingsError(
            fmt::format("color = {}: there are auto, always and never", *settings.color));
      }
      arguments_.color = mode->second;
    }
  }

 private:
  static std::map<std::string, ColorMode> colorModes() {
    return {
        {"auto", ColorMode::automatic}, {"always", ColorMode::always}, {"never", ColorMode::never}};
  }

  [[nodiscard]] std::string settingUri(const std::string& text) const {
    // The doctor itself says what is wrong with an address.
    if (arguments_.subcommand != "doctor") {
      try {
        static_cast<void>(Options::fromUri(text));
      } catch (const Error& error) {
        throw SettingsError(fmt::format("uri in the configuration file: {}", error.what()));
      }
    }
    return text;
  }

  static Duration settingDuration(const char* key, const std::string& text) {
    const auto parsed = parseDuration(text);
    if (!parsed) {
      throw SettingsError(fmt::format("{} = {}: is no length of time", key, text));
    }
    return *parsed;
  }

  template <class Set>
  static CLI::Option* addDuration(CLI::App& app,
                                  const std::string& name,
                                  Set set,
                                  const std::string& text) {
    return app
        .add_option_function<std::string>(
            name, [name, set](const std::string& value) { set(readDuration(name, value)); }, text)
        ->type_name("DURATION");
  }

  void addCommon(CLI::App& app) {
    app.add_option("-u,--uri", arguments_.uri, "The server, as redis://user:password@host:port/db")
        ->type_name("URI");
    app.add_option_function<std::string>(
           "--config",
           [this](const std::string& path) { configPath_ = path; },
           "Configuration file")
        ->type_name("FILE");
    app.add_flag("-v,--verbose", arguments_.verbose, "Say more on standard error");
    app.add_option_function<std::string>(
           "--color",
           [this](const std::string& value) {
             colorGiven_ = true;
             arguments_.color = colorModes().at(value);
           },
           "Colours: auto (on a terminal, unless NO_COLOR is set), always, never")
        ->type_name("WHEN")
        ->check(CLI::IsMember(std::vector<std::string>{"auto", "always", "never"}));
  }

  void addLockOptions(const std::string& name) {
    CLI::App& app = *app_.get_subcommand(name);
    LockChoice& lock = arguments_.lock;
    CLI::Option* const fair = app.add_flag("--fair", lock.fair, "First come, first served");
    CLI::Option* const read = app.add_flag("--read", lock.read, "Share the lock with other --read");
    CLI::Option* const write =
        app.add_flag("--write", lock.write, "Exclude --read and --write of the same name");
    CLI::Option* const fenced = app.add_flag(
        "--fenced", lock.fenced, "Get a fencing token, a number that rises with each hold");
    CLI::Option* const semaphore =
        app.add_option(
               "--semaphore", lock.semaphore, "Let N hold it at once; all must say the same N")
            ->type_name("N")
            ->check(CLI::Range(1, 1'000'000));
    CLI::Option* const red =
        app.add_option("--red", lock.red, "RedLock over independent servers, instead of --uri")
            ->type_name("URI,...")
            ->delimiter(',')
            // One argument each time: the next is the lock's name.
            ->allow_extra_args(false)
            ->take_all();
    CLI::Option* const also =
        app.add_option("--also", lock.also, "Hold that lock as well: all of them, or none")
            ->type_name("NAME")
            ->allow_extra_args(false)
            ->take_all();
    for (CLI::Option* const single : {fenced, semaphore, red}) {
      also->excludes(single);
    }
    const std::vector<CLI::Option*> kinds{fair, read, write, fenced, semaphore, red};
    for (CLI::Option* kind : kinds) {
      for (CLI::Option* other : kinds) {
        // A RedLock has no kinds of its own, and the others are kinds.
        if (kind != other) {
          kind->excludes(other);
        }
      }
    }
    if (name != "try") {
      CLI::Option* const wait = addDuration(
          app,
          "-w,--wait",
          [&lock](Duration value) { lock.wait = value; },
          "Give up after so long; without, wait for ever");
      app.add_flag("-n,--no-wait", noWait_, "Give up at once")->excludes(wait);
    }
    addDuration(
        app,
        "--lease",
        [&lock](Duration value) { lock.lease = value; },
        "How long the lock outlives this program if it dies; it is renewed while it lives (30s)");
    addDuration(
        app,
        "--max-hold",
        [&lock](Duration value) { lock.maxHold = value; },
        "Give the lock up after so long, whatever happens");
    app.add_option_function<std::string>(
           "--label",
           [this](const std::string& value) {
             labelGiven_ = true;
             arguments_.lock.label = value;
           },
           name == "hold"
               ? "What others see of the holder; rlock hold"
               : "What others see of the holder; the command's name, and sh with --shell")
        ->type_name("TEXT");
    app.add_flag("--no-label", lock.noLabel, "Show nothing of the holder to others");
    app.add_option("-E,--conflict-exit-code",
                   lock.conflictCode,
                   "Exit status when another owner holds the lock (75)")
        ->type_name("N")
        ->check(CLI::Range(0, 255));
    if (name == "hold") {
      app.add_option("NAME", lock.name, "The lock")->required();
      app.add_flag("--no-stdin", arguments_.noStdin, "Do not end when standard input does");
      app.add_flag("--json", arguments_.json, "Print JSON");
    }
  }

  void addRunOptions(const std::string& name) {
    CLI::App& app = *app_.get_subcommand(name);
    addDuration(
        app,
        "-k,--kill-after",
        [this](Duration value) {
          killAfterGiven_ = true;
          arguments_.command.killAfter = value.ceilMilliseconds();
        },
        "Time between SIGTERM and SIGKILL when the lock is being lost (5s); at most a third of the "
        "lease");
    addDuration(
        app,
        "--min-hold",
        [this](Duration value) { arguments_.command.minHold = value; },
        "Keep the lock for so long at least, also when the command has ended");
    app.add_flag("-c,--shell", arguments_.command.shell, "COMMAND is a line for sh -c");
    app.add_flag("--no-stdin", arguments_.noStdin, "Give the command an empty standard input");
    app.add_flag("--loss-fd",
                 arguments_.command.lossDescriptor,
                 "Give the command a descriptor, RLOCK_FD, that ends when the lock is being lost");
    app.add_option("--events",
                   arguments_.command.events,
                   "Write what happens to that open descriptor, as JSON, one object a line")
        ->type_name("FD")
        ->check(CLI::Range(1, 1'000'000));
    app.add_flag(
        "--foreground",
        arguments_.command.foreground,
        "Run the command in this process group: for pipelines that read the terminal. What it "
        "starts is then not killed with it");
  }

  CLI::App& named(const std::string& name, bool required, const std::string& text) {
    CLI::App& app = *app_.get_subcommand(name);
    CLI::Option* const operand = app.add_option("NAME", arguments_.lock.name, text);
    if (required) {
      operand->required();
    }
    return app;
  }

  void addOthers() {
    CLI::App& wait = named("wait", true, "The lock");
    addDuration(
        wait,
        "-w,--wait",
        [this](Duration value) { arguments_.lock.wait = value; },
        "Give up after so long, with 75");
    named("show", true, "The lock").add_flag("--json", arguments_.json, "Print JSON");
    CLI::App& unlock = named("unlock", true, "The lock");
    unlock.add_flag("--force", arguments_.force, "Yes, although it is somebody else's");
    CLI::App& doctor = named("doctor", false, "Beginning of the names that the checks use");
    doctor.add_flag("--json", arguments_.json, "Print JSON");
    for (const char* name : {"list", "top"}) {
      CLI::App& app = *app_.get_subcommand(name);
      app.add_option("PATTERN", arguments_.pattern, "Names to show, *");
      if (std::string_view(name) == "list") {
        app.add_flag("--json", arguments_.json, "Print JSON, one array");
        app.add_flag("--names",
                     arguments_.namesOnly,
                     "Print names only, one a line, escaped on a terminal only");
      } else {
        addDuration(
            app,
            "-i,--interval",
            [this](Duration value) {
              arguments_.interval =
                  std::max(std::chrono::milliseconds(100), value.ceilMilliseconds());
            },
            "Time between two looks at the server (1s)");
        app.add_option("--frames", arguments_.frames, "End after so many pictures")
            ->type_name("N")
            ->check(CLI::Range(1, 1'000'000));
      }
    }
    CLI::App& bench = *app_.get_subcommand("bench");
    bench.add_option("-t,--threads", arguments_.threads, "Threads (4)")
        ->type_name("N")
        ->check(CLI::Range(1, 1000));
    addDuration(
        bench,
        "-d,--duration",
        [this](Duration value) { arguments_.duration = value.ceilMilliseconds(); },
        "How long to measure (3s)");
    bench.add_flag("--json", arguments_.json, "Print JSON");
    app_.get_subcommand("completion")
        ->add_option("SHELL", arguments_.shell, "bash, zsh or fish")
        ->required()
        ->check(CLI::IsMember(std::vector<std::string>{"bash", "zsh", "fish"}));
  }

  Arguments arguments_;
  std::optional<std::string> configPath_;
  bool noWait_ = false;
  bool killAfterGiven_ = false;
  bool labelGiven_ = false;
  bool colorGiven_ = false;
  CLI::App app_;
};

// Whether the argument after this one is the value of an option in it.
bool takesNext(const CLI::App* sub, const CLI::App& app, const std::string& argument) {
  const auto wantsValue = [&](const std::string& name) {
    const CLI::Option* option = sub != nullptr ? sub->get_option_no_throw(name) : nullptr;
    if (option == nullptr) {
      option = app.get_option_no_throw(name);
    }
    return option != nullptr && option->get_items_expected_max() > 0;
  };
  if (argument.starts_with("--")) {
    return argument.find('=') == std::string::npos && wantsValue(argument);
  }
  for (std::size_t i = 1; i < argument.size(); ++i) {
    if (wantsValue(std::string("-") + argument[i])) {
      return i + 1 == argument.size();
    }
  }
  return false;
}

// Where the options of `run` and `try` end: at the lock's name, or at "--"; the number of arguments
// for other subcommands.
std::size_t endOfOptions(const CLI::App& app, const std::vector<std::string>& args) {
  const CLI::App* sub = nullptr;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string& argument = args[i];
    const bool option = argument.size() > 1 && argument.front() == '-';
    if (option && argument != "--") {
      i += takesNext(sub, app, argument) ? 1U : 0U;
      continue;
    }
    if (sub != nullptr) {
      return i;
    }
    if (argument == "--") {
      return args.size();
    }
    for (const char* name : {"run", "try"}) {
      if (argument == name) {
        sub = app.get_subcommand(name);
      }
    }
    if (sub == nullptr) {
      return args.size();
    }
  }
  return args.size();
}

// CLI11 takes `--label=` for an option without its value. A value that is empty has to stand alone.
std::vector<std::string> withEmptyValues(std::span<const std::string> args) {
  std::vector<std::string> result;
  for (const std::string& argument : args) {
    if (argument.starts_with("--") && argument.find('=') == argument.size() - 1) {
      result.push_back(argument.substr(0, argument.size() - 1));
      result.emplace_back();
    } else {
      result.push_back(argument);
    }
  }
  return result;
}

// CLI11 ends a subcommand at "++", which is a name like any other here: as an operand it goes
// behind "--", where nothing has a meaning of its own.
std::vector<std::string> withoutTerminators(const CLI::App& app, std::vector<std::string> args) {
  std::vector<std::string> names;
  const CLI::App* sub = nullptr;
  for (std::size_t i = 0; i < args.size() && args[i] != "--";) {
    if (args[i] == "++") {
      names.push_back(args[i]);
      args.erase(args.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    const bool option = args[i].size() > 1 && args[i].front() == '-';
    for (const SubcommandWords& words : kSubcommands) {
      if (sub == nullptr && words.name == args[i]) {
        sub = app.get_subcommand(args[i]);
      }
    }
    i += option && takesNext(sub, app, args[i]) ? 2U : 1U;
  }
  if (!names.empty()) {
    const auto end = std::find(args.begin(), args.end(), "--");
    if (end == args.end()) {
      args.emplace_back("--");
    }
    args.insert(args.end(), names.begin(), names.end());
  }
  return args;
}

Ended usageError(const std::string& text) {
  return {number(ExitCode::usage), "", fmt::format("rlock: {}\nTry \"rlock --help\".\n", text)};
}

// A word that is left over says more than that something is missing. Empty: nothing is left over.
std::string unexpected(const CLI::App& app) {
  const std::vector<std::string> rest = app.remaining(true);
  for (const std::string& argument : rest) {
    if (argument.size() > 1 && argument.front() == '-') {
      return fmt::format(
          "unknown option \"{}\"; an operand that begins with a dash comes after \"--\"",
          detail::escapeForDisplay(argument));
    }
  }
  return rest.empty()
             ? std::string()
             : fmt::format("unexpected argument \"{}\"", detail::escapeForDisplay(rest.front()));
}

// The operands of `run` and `try`.
std::optional<Ended> takeCommand(Arguments& arguments, std::vector<std::string> rest) {
  if (!rest.empty() && rest.front() == "--") {
    rest.erase(rest.begin());
  }
  if (rest.empty() || rest.front().empty()) {
    return usageError(fmt::format("{}: the name of a lock is missing", arguments.subcommand));
  }
  arguments.lock.name = rest.front();
  rest.erase(rest.begin());
  if (!rest.empty() && rest.front() == "--") {
    rest.erase(rest.begin());
  }
  if (rest.empty() || rest.front().empty()) {
    return usageError(fmt::format("{}: a command is missing", arguments.subcommand));
  }
  arguments.command.argv = std::move(rest);
  return std::nullopt;
}

std::optional<Ended> checked(const Arguments& arguments) {
  const LockChoice& lock = arguments.lock;
  if (lock.lease && !usableLease(*lock.lease)) {
    return usageError("--lease: from 100ms to 365d");
  }
  if (lock.maxHold && *lock.maxHold < std::chrono::milliseconds(100)) {
    return usageError("--max-hold: 100ms at least");
  }
  if (lock.maxHold && arguments.command.minHold > *lock.maxHold) {
    return usageError("--min-hold: no longer than --max-hold");
  }
  if (arguments.subcommand == "bench" && arguments.duration > kYear) {
    return usageError("--duration: 365d at most, for the result comes at the end");
  }
  if (arguments.subcommand == "unlock" && !arguments.force) {
    return usageError(
        "unlock: takes the lock from its holder, who is not stopped by that; say --force to mean "
        "it");
  }
  return std::nullopt;
}

std::vector<OptionEntry> optionsOf(const CLI::App& app) {
  std::vector<OptionEntry> entries;
  for (const CLI::Option* option : app.get_options()) {
    OptionEntry entry;
    for (const std::string& name : option->get_snames()) {
      entry.names.push_back("-" + name);
    }
    for (const std::string& name : option->get_lnames()) {
      entry.names.push_back("--" + name);
    }
    if (entry.names.empty()) {
      continue;
    }
    entry.argument = argumentOf(*option);
    entry.description = option->get_description();
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace

ParsedArguments parseArguments(const std::vector<std::string>& args) {
  Parser parser;
  CLI::App& app = parser.app();
  try {
    const std::size_t end = endOfOptions(app, args);
    // CLI11 takes them from the back.
    std::vector<std::string> reversed =
        withoutTerminators(app, withEmptyValues(std::span(args).first(end)));
    std::reverse(reversed.begin(), reversed.end());
    app.parse(reversed);
    Arguments& arguments = parser.arguments();
    arguments.subcommand = app.get_subcommands().front()->get_name();
    if (arguments.subcommand == "run" || arguments.subcommand == "try") {
      if (auto ended = takeCommand(arguments,
                                   {args.begin() + static_cast<std::ptrdiff_t>(end), args.end()})) {
        return {std::nullopt, std::move(*ended)};
      }
    }
    if (parser.noWait() || arguments.subcommand == "try") {
      arguments.lock.wait = Duration::zero();
    }
    parser.applySettings(readSettings(parser.configPath()));
    if (auto ended = checked(arguments)) {
      return {std::nullopt, std::move(*ended)};
    }
    return {std::move(arguments), {}};
  } catch (const CLI::CallForHelp&) {
    const auto subs = app.get_subcommands();
    return {std::nullopt, {0, subs.empty() ? app.help() : subs.front()->help("rlock"), ""}};
  } catch (const CLI::CallForVersion& version) {
    return {std::nullopt, {0, std::string(version.what()) + "\n", ""}};
  } catch (const CLI::ParseError& error) {
    const bool operands = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr ||
                          dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
    const std::string rest = operands ? unexpected(app) : std::string();
    return {std::nullopt, usageError(rest.empty() ? error.what() : rest)};
  } catch (const SettingsError& error) {
    return {std::nullopt,
            {number(ExitCode::configuration), "", fmt::format("rlock: {}\n", error.what())}};
  }
}

std::vector<SubcommandEntry> subcommandTable() {
  Parser parser;
  std::vector<SubcommandEntry> table;
  table.reserve(kSubcommands.size());
  for (const SubcommandWords& words : kSubcommands) {
    table.push_back({std::string(words.name),
                     std::string(words.synopsis),
                     std::string(words.description),
                     std::string(words.details),
                     optionsOf(*parser.app().get_subcommand(std::string(words.name))),
                     words.takesLockName});
  }
  return table;
}

std::vector<OptionEntry> commonOptionTable() {
  Parser parser;
  return optionsOf(parser.app());
}

}  // namespace rlock::cli
