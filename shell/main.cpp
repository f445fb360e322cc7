// `lockstep` reads the command line and hands over to a subcommand.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/error.h"
#include "protocol/version.h"
#include "shell/commands/command.h"
#include "shell/processes/launcher.h"
#include "shell/processes/limits.h"
#include "shell/processes/rehearsal.h"
#include "shell/text/suggest.h"
#include "shell/text/text_output.h"

namespace lockstep::shell {

namespace {

/// Returns the word of the command line that is no command and no option where it stands, with the nearest that is:
/// CLI11 only says that it is not expected. Nothing when every word is known.
std::string slip_in(const CLI::App& app, int argc, char** argv) {
  const CLI::App* command = &app;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string name = word.substr(0, word.find('='));
    if (name.size() > 1 && name[0] == '-') {
      if (command->get_option_no_throw(name)) continue;
      std::vector<std::string> options = {"--help"};
      for (const CLI::Option* option : command->get_options())
        for (const std::string& known : option->get_lnames()) options.push_back("--" + known);
      return name.starts_with("--") || name.size() == 2 ? name + did_you_mean(name, options) : "";
    }
    std::vector<std::string> names;
    const CLI::App* next = nullptr;
    for (const CLI::App* each : command->get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(each->get_name());
      if (each->get_name() == word) next = each;
    }
    if (next)
      command = next;
    else if (!names.empty())
      return word + did_you_mean(word, names);
  }
  return "";
}

/// Throws UsageError where an option has another option of the command in place of its value. CLI11 would take that as
/// the value: `--json --no-journal` would write a file of that name.
void require_values(const CLI::App& app, int argc, char** argv) {
  const CLI::App* command = &app;
  for (int i = 1; i + 1 < argc && std::string_view(argv[i]) != "--"; ++i) {
    for (const CLI::App* each : command->get_subcommands([](const CLI::App*) { return true; }))
      if (each->get_name() == argv[i]) command = each;
    const std::string next = argv[i + 1];
    const CLI::Option* const option = argv[i][0] == '-' ? command->get_option_no_throw(argv[i]) : nullptr;
    if (option && option->get_items_expected_min() > 0 && next.starts_with("--") && next.size() > 2 &&
        command->get_option_no_throw(next.substr(0, next.find('='))))
      throw UsageError(std::string(argv[i]) + " needs a value, and " + next + " is another option. " + argv[i] + ": " +
                       option->get_description());
  }
}

int refuse(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
  const bool is_slip = dynamic_cast<const CLI::ExtrasError*>(&error) || dynamic_cast<const CLI::RequiredError*>(&error);
  const std::string slip = is_slip ? slip_in(app, argc, argv) : "";
  if (slip.empty())
    write_message(error.what());
  else
    write_message(std::string("unknown ") + (slip[0] == '-' ? "option " : "command ") + slip);
  std::fputs("lockstep --help lists commands and options\n", stderr);
  return 2;
}

/// Whether a shell would find a program of that name, or would where the environment of Python is active.
bool is_program(const std::string& name) {
  if (name == "torchrun" || name == "accelerate" || name == "deepspeed") return true;
  if (name.find('/') != std::string::npos || name.find('.') != std::string::npos) return false;
  return !find_in_path(name).empty();
}

/// Takes what follows `--` of `lockstep run [options] -- LAUNCHER…` or `lockstep replay` off the command line: it
/// has options of its own.
/// Throws UsageError where a launcher has none before it.
void take_launcher(int& argc, char** argv) {
  if (argc < 2 || (std::string_view(argv[1]) != "run" && std::string_view(argv[1]) != "replay")) return;
  std::string launcher;  // where it comes before any script
  bool has_script = std::string_view(argv[1]) == "replay";  // its file
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--") {
      launcher_arguments().assign(argv + i + 1, argv + argc);
      if (!launcher_arguments().empty()) argc = i;
      return;
    }
    if (!launcher.empty() || has_script) continue;
    has_script =
        word == "-" || word.starts_with("--journal") || word.ends_with(".cpp") || ::access(word.c_str(), F_OK) == 0;
    if (!has_script && !word.starts_with('-') && is_program(word)) launcher = word;
  }
  if (!launcher.empty())
    throw UsageError(launcher + " is a program, and no session script: what starts a job stands behind --, as in " +
                     "lockstep run -- " + launcher + " ...");
}

int run_main(int argc, char** argv) {
  take_launcher(argc, argv);
  CLI::App app("A C++ REPL and debugging workbench for data-parallel training.", "lockstep");
  app.set_version_flag("--version", std::string("lockstep ") + kVersion);
  app.require_subcommand(0, 1);
  std::function<int()> chosen;
  for (const auto& command : commands()) {
    CLI::App& target = command.name.empty() ? app : *app.add_subcommand(command.name, command.summary);
    auto run = command.set_up(target);
    if (command.name.empty()) {
      if (!chosen) chosen = std::move(run);
    } else {
      target.final_callback([&chosen, run = std::move(run)] { chosen = run; });
    }
  }
  require_values(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return refuse(app, error, argc, argv);
  }
  if (!chosen) {
    std::fputs(app.help().c_str(), stderr);
    return 2;
  }
  return chosen();
}

}  // namespace
}  // namespace lockstep::shell

int main(int argc, char** argv) {
  if (lockstep::shell::is_rehearsal_process(argc, argv)) return lockstep::shell::run_rehearsal_process(argc, argv);
  lockstep::shell::raise_stack_limit();
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return lockstep::shell::run_main(argc, argv);
  } catch (const lockstep::UsageError& error) {
    lockstep::shell::write_message(error.what());
    return 2;
  } catch (const lockstep::StartError& error) {
    lockstep::shell::write_message(error.what());
    return 3;
  } catch (const std::exception& error) {
    lockstep::shell::write_message(error.what());
    return 1;
  }
}
