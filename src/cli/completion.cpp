// SPDX-License-Identifier: Apache-2.0

// The scripts that complete a command line of the program, and the subcommand that prints one. Each
// shell has a function that makes its script of the tables of arguments.cpp, so that a new option
// or subcommand is in all three at once. The one for bash is filled into kBash, a format of fmt in
// which each brace of the script is doubled; those for zsh and fish are put together line by line.
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/documents.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace rlock::cli {

namespace {

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

std::vector<std::string> optionNames(const std::vector<OptionEntry>& options, bool withArgument) {
  std::vector<std::string> names;
  for (const OptionEntry& option : options) {
    if (!withArgument || !option.argument.empty()) {
      names.insert(names.end(), option.names.begin(), option.names.end());
    }
  }
  return names;
}

std::vector<OptionEntry> allOptions(const SubcommandEntry& entry) {
  std::vector<OptionEntry> options = entry.options;
  for (const OptionEntry& common : commonOptionTable()) {
    bool known = false;
    for (const OptionEntry& own : entry.options) {
      known |= own.names == common.names;
    }
    if (!known) {
      options.push_back(common);
    }
  }
  return options;
}

std::vector<std::string> subcommandNames() {
  std::vector<std::string> names;
  for (const SubcommandEntry& entry : subcommandTable()) {
    names.push_back(entry.name);
  }
  return names;
}

std::string namesOf(bool (*wanted)(const SubcommandEntry&)) {
  std::vector<std::string> names;
  for (const SubcommandEntry& entry : subcommandTable()) {
    if (wanted(entry)) {
      names.push_back(entry.name);
    }
  }
  return fmt::format("{}", fmt::join(names, "|"));
}

bool runsCommand(const SubcommandEntry& entry) {
  return entry.name == "run" || entry.name == "try";
}

bool takesName(const SubcommandEntry& entry) {
  return entry.takesLockName;
}

// The names of locks come from the server, if it answers quickly. Anybody who may write there
// chooses them, so they must not come into a list of words for compgen -W, which expands it.
constexpr std::string_view kBash = R"sh(# bash completion for rlock

# Offers the lines that begin with the current word, quoted for the command line.
_rlock_names() {{
  local name quoted
  while IFS= read -r name; do
    printf -v quoted %q "$name"
    if [[ $current == [\'\"]* ]]; then
      # Behind a quote the name stands as it is, if it can.
      if [[ $name == "${{current:1}}"* && $name != *[\'\"\\\`\$!]* ]]; then
        COMPREPLY+=("$name")
      fi
    elif [[ $name == "$current"* ]]; then
      printf -v quoted %q "${{name#"$prefix"}}"
      COMPREPLY+=("$quoted")
    elif [[ $quoted == "$current"* ]]; then
      COMPREPLY+=("${{quoted#"$prefix"}}")
    fi
  done
}}

# Offers what compgen prints for these arguments.
_rlock_words() {{
  local word
  while IFS= read -r word; do
    COMPREPLY+=("${{word#"$prefix"}}")
  done < <(compgen "$@")
}}

_rlock() {{
  # Bash breaks words at colons and the like, which names and addresses have inside. Here such words
  # are whole again; prefix is the part of the current one that bash does not replace, and starts
  # says where each of them is in COMP_WORDS.
  COMPREPLY=()
  local breaks=${{COMP_WORDBREAKS//[!:=@]/}} line=${{COMP_LINE-}} prefix= part part_breaks broke=no i
  local -a words=() starts=()
  for ((i = 0; i <= COMP_CWORD; i++)); do
    part=${{COMP_WORDS[i]}}
    part_breaks=no
    [[ -n $breaks && -n $part && $part != *[!$breaks]* ]] && part_breaks=yes
    prefix=
    if ((i > 0)) && [[ $line != [[:space:]]* && $part_breaks$broke == *yes* ]]; then
      prefix=${{words[-1]}}
      words[-1]+=$part
    else
      words+=("$part")
      starts+=("$i")
    fi
    [[ $part_breaks == yes ]] && prefix+=$part
    broke=$part_breaks
    line=${{line#*"$part"}}
  done
  # Readline takes an @ for the beginning of what it replaces.
  prefix=${{prefix%@}}

  local current=${{words[-1]}} word subcommand= operands=0 skip= with_value options=
  for ((i = 1; i < ${{#words[@]}} - 1; i++)); do
    word=${{words[i]}}
    if [[ -n $skip ]]; then
      skip=
      continue
    fi
    case $subcommand in
{}      *) with_value=' {} ' ;;
    esac
    if [[ $word == -- ]]; then
      continue
    elif [[ $word == -* ]]; then
      [[ $with_value == *" $word "* ]] && skip=yes
    elif [[ -z $subcommand ]]; then
      subcommand=$word
    else
      operands=$((operands + 1))
      case $subcommand in
        {})
          if ((operands == 2)); then
            _command_offset "${{starts[i]}}" 2>/dev/null
            return
          fi
          ;;
      esac
    fi
  done
  if [[ -n $skip ]]; then
    _rlock_words -f -- "$current"
    return
  fi
  case $subcommand in
    '')
      _rlock_words -W '{} {}' -- "$current"
      return
      ;;
{}  esac
  if [[ $current == --*=* ]]; then
    _rlock_words -P "${{current%%=*}}=" -f -- "${{current#*=}}"
    return
  elif [[ $current == -* ]]; then
    _rlock_words -W "$options" -- "$current"
    return
  fi
  case $subcommand in
    completion) _rlock_words -W 'bash zsh fish' -- "$current" ;;
    {})
      if ((operands == 0)); then
        _rlock_names < <(timeout 1 rlock list --names 2>/dev/null)
      else
        _rlock_words -c -- "$current"
      fi
      ;;
  esac
}}
complete -F _rlock rlock
)sh";

std::string bash() {
  std::string valued;
  std::string offered;
  for (const SubcommandEntry& entry : subcommandTable()) {
    const auto options = allOptions(entry);
    valued += fmt::format(
        "      {}) with_value=' {} ' ;;\n", entry.name, joined(optionNames(options, true)));
    offered +=
        fmt::format("    {}) options='{}' ;;\n", entry.name, joined(optionNames(options, false)));
  }
  const auto common = commonOptionTable();
  return fmt::format(kBash,
                     valued,
                     joined(optionNames(common, true)),
                     namesOf(runsCommand),
                     joined(subcommandNames()),
                     joined(optionNames(common, false)),
                     offered,
                     namesOf(takesName));
}

std::string escaped(std::string_view text, std::string_view special, std::string_view replacement) {
  std::string result;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) {
      result += replacement;
    }
    result += c;
  }
  return result;
}

// For a specification between single quotes.
std::string zshText(std::string_view text) {
  std::string result;
  for (const char c : escaped(text, "[]:\\", "\\")) {
    result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return result;
}

std::string zsh() {
  std::string text =
      "#compdef rlock\n"
      "# zsh completion for rlock\n"
      "_rlock_names() {\n"
      "  local -a names\n"
      "  names=(${(f)\"$(timeout 1 rlock list --names 2>/dev/null)\"})\n"
      "  compadd -a names\n"
      "}\n"
      "_rlock() {\n"
      "  local -a subcommands\n"
      "  subcommands=(\n";
  for (const SubcommandEntry& entry : subcommandTable()) {
    text += fmt::format("    '{}:{}'\n", entry.name, zshText(entry.description));
  }
  text +=
      "  )\n"
      "  if ((CURRENT == 2)); then\n"
      "    _describe subcommand subcommands\n"
      "    return\n"
      "  fi\n"
      "  local subcommand=$words[2]\n"
      "  shift words\n"
      "  ((CURRENT--))\n"
      "  case $subcommand in\n";
  for (const SubcommandEntry& entry : subcommandTable()) {
    text += fmt::format("    {})\n      _arguments -S \\\n", entry.name);
    for (const OptionEntry& option : allOptions(entry)) {
      for (const std::string& name : option.names) {
        text +=
            fmt::format("        '{}[{}]{}' \\\n",
                        name,
                        zshText(option.description),
                        option.argument.empty() ? "" : ":" + zshText(option.argument) + ":_files");
      }
    }
    if (runsCommand(entry)) {
      text += "        '1:lock:_rlock_names' '*::command:_normal'\n";
    } else if (entry.name == "completion") {
      text += "        '1:shell:(bash zsh fish)'\n";
    } else {
      text += entry.takesLockName ? "        '1:lock:_rlock_names'\n" : "        '*: :'\n";
    }
    text += "      ;;\n";
  }
  return text + "  esac\n}\n_rlock \"$@\"\n";
}

std::string fishText(std::string_view text) {
  return escaped(text, "'\\", "\\");
}

std::string fish() {
  std::string text =
      "# fish completion for rlock\n"
      "complete -c rlock -f\n";
  const std::string all = joined(subcommandNames());
  for (const SubcommandEntry& entry : subcommandTable()) {
    text += fmt::format("complete -c rlock -n 'not __fish_seen_subcommand_from {}' -a {} -d '{}'\n",
                        all,
                        entry.name,
                        fishText(entry.description));
    const std::string condition = fmt::format("-n '__fish_seen_subcommand_from {}'", entry.name);
    for (const OptionEntry& option : allOptions(entry)) {
      std::string names;
      for (const std::string& name : option.names) {
        names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      text += fmt::format("complete -c rlock {}{}{} -d '{}'\n",
                          condition,
                          names,
                          option.argument.empty() ? "" : " -r",
                          fishText(option.description));
    }
    if (entry.takesLockName) {
      text += fmt::format("complete -c rlock {} -a '(timeout 1 rlock list --names 2>/dev/null)'\n",
                          condition);
    }
    if (runsCommand(entry)) {
      text += fmt::format("complete -c rlock {} -a '(__fish_complete_subcommand --fcs-skip=3)'\n",
                          condition);
    }
  }
  return text +
         "complete -c rlock -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n";
}

}  // namespace

std::string completionScript(std::string_view shell) {
  if (shell == "bash") {
    return bash();
  }
  return shell == "zsh" ? zsh() : fish();
}

int completionCommand(const Arguments& arguments) {
  fmt::print("{}", completionScript(arguments.shell));
  return 0;
}

}  // namespace rlock::cli
