// `lockstep`: reads the command line and hands over to a subcommand.
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <vector>

#include "protocol/error.h"
#include "protocol/version.h"
#include "shell/command.h"
#include "shell/suggest.h"

namespace lockstep::shell {

namespace {

/// A first word that is no command but near to one is a slip; CLI11 would only say that it is not expected.
int refuse(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
  std::fprintf(stderr, "lockstep: %s", error.what());
  std::vector<std::string> names;
  for (const auto& command : commands())
    if (!command.name.empty()) names.push_back(command.name);
  if (argc > 1 && argv[1][0] != '-') std::fputs(did_you_mean(argv[1], names).c_str(), stderr);
  std::fputs("\nlockstep --help lists commands and options\n", stderr);
  return 2;
}

int run_main(int argc, char** argv) {
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
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return lockstep::shell::run_main(argc, argv);
  } catch (const lockstep::UsageError& error) {
    std::fprintf(stderr, "lockstep: %s\n", error.what());
    return 2;
  } catch (const lockstep::StartError& error) {
    std::fprintf(stderr, "lockstep: %s\n", error.what());
    return 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep: %s\n", error.what());
    return 1;
  }
}
