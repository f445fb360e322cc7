// `lockstep kernel install|run` is the kernel for Jupyter.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "protocol/error.h"
#include "shell/commands/command.h"
#include "shell/commands/session_flags.h"
#include "shell/jobs/python_ranks.h"
#include "shell/jobs/session_hosts.h"
#include "shell/jupyter/kernel.h"
#include "shell/jupyter/kernel_relay.h"
#include "shell/jupyter/kernel_spec.h"
#include "shell/terminal/resumable.h"

namespace lockstep::shell {
namespace {

struct KernelChoice {
  std::function<int()> run;
  // install
  bool user = false;
  std::string prefix;
  jupyter::KernelSpec spec;
  SessionOptions installed;  // as given to install; it checks them
  // run
  jupyter::KernelOptions kernel;
  jupyter::RelayOptions relay;  // with an id: of a session that is there, also of install
};

void add_resume_options(CLI::App& app, jupyter::RelayOptions& relay) {
  CLI::Option* const resume =
      app.add_option("--resume", relay.id,
                     "Run cells in a detachable session of a terminal: its id, the beginning of it, or last")
          ->type_name("ID");
  app.add_flag("--take-over", relay.takes_over, "With --resume: from the terminal or notebook that is attached")
      ->needs(resume);
}

/// Returns the session's options as they were given, for the kernel's command line. Paths of this machine are made
/// absolute: the kernel starts anywhere.
std::vector<std::string> words_of(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    const std::string name = option->get_lnames().front();
    if (name == "user" || name == "prefix" || name == "name" || name == "display-name") continue;
    if (option->get_items_expected_max() == 0) {
      const std::string& value = option->results().front();  // of --python=PATH
      words.push_back("--" + name + (value == "true" ? "" : "=" + value));
      continue;
    }
    const bool is_path = name == "include-dir" || name == "ticket" || name == "recording";
    for (const std::string& value : option->results())
      words.push_back(fmt::format("--{}={}", name, is_path ? std::filesystem::absolute(value).string() : value));
  }
  return words;
}

int install(KernelChoice& choice, const CLI::App& app) {
  if (choice.user && !choice.prefix.empty())
    throw UsageError("--user and --prefix name different places: give one of them");
  SessionOptions checked = choice.installed;
  choose_hosts(checked);
  jupyter::KernelSpec& spec = choice.spec;
  if (const std::string& id = choice.relay.id; app.count("--resume") > 0) {
    check_resume_alone(app, {"--take-over", "--user", "--prefix", "--name", "--display-name"});
    if (id != "last") (void)find_resumable(id);
    if (spec.name.empty()) spec.name = "lockstep-resume";
    if (spec.display_name.empty())
      spec.display_name = id == "last" ? "Lockstep (the session left last)" : "Lockstep (the session " + id + ")";
  }
  spec.options = words_of(app);
  // Jupyter may start the kernel in another environment.
  if (const auto& python = choice.installed.python)
    std::ranges::replace_if(
        spec.options, [](const std::string& each) { return each.starts_with("--python"); },
        "--python=" + find_interpreter(*python));
  spec.is_python = choice.installed.python.has_value();
  if (spec.name.empty()) spec.name = spec.is_python ? "lockstep-python" : "lockstep";
  if (spec.display_name.empty()) {
    const auto ranks = choice.installed.num_processes;
    spec.display_name = fmt::format("Lockstep ({}{})", spec.is_python ? "Python" : "C++20",
                                    ranks ? fmt::format(", {} rank{}", *ranks, *ranks == 1 ? "" : "s") : std::string());
  }
  const std::string folder =
      choice.prefix.empty() ? jupyter::kernels_folder_of_user() : jupyter::kernels_folder_under(choice.prefix);
  const std::string path = jupyter::install_kernel(folder, spec);
  std::printf("installed the kernel \"%s\" in %s\n", spec.display_name.c_str(), path.c_str());
  std::printf("jupyter lab lists it; jupyter console --kernel %s opens it in a terminal\n", spec.name.c_str());
  return 0;
}

std::function<int()> set_up_kernel(CLI::App& app) {
  auto choice = std::make_shared<KernelChoice>();
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Print the options of install and run");
  CLI::App& install_command = *app.add_subcommand("install", "Tells Jupyter where the kernel is");
  install_command.add_flag("--user", choice->user, "For this user (the default)");
  install_command.add_option("--prefix", choice->prefix, "Under DIR/share/jupyter: a virtual environment, /usr/local")
      ->type_name("DIR");
  install_command
      .add_option("--name", choice->spec.name, "What the kernel is called (lockstep; lockstep-python with --python)")
      ->type_name("NAME");
  install_command.add_option("--display-name", choice->spec.display_name, "What people see in menus")
      ->type_name("TEXT");
  add_session_options(install_command, choice->installed);
  add_resume_options(install_command, choice->relay);
  install_command.final_callback([choice = choice.get(), command = &install_command] {
    choice->run = [choice, command] { return install(*choice, *command); };
  });
  CLI::App& run_command = *app.add_subcommand("run", "The kernel itself; Jupyter starts it");
  run_command
      .add_option("-f,--connection-file", choice->kernel.connection_file,
                  "Sockets and key; without it the kernel makes one and prints how to connect")
      ->type_name("FILE");
  add_session_options(run_command, choice->kernel.session);
  add_resume_options(run_command, choice->relay);
  run_command.final_callback([choice = choice.get(), command = &run_command] {
    choice->run = [choice, command] {
      if (command->count("--resume") > 0) {
        check_resume_alone(*command, {"--take-over", "--connection-file"});
        choice->relay.connection_file = choice->kernel.connection_file;
        return jupyter::run_kernel_relay(choice->relay);
      }
      choice->kernel.start_now = asks_for_ranks(choice->kernel.session);
      choose_hosts(choice->kernel.session);
      return jupyter::run_kernel(choice->kernel);
    };
  });
  return [choice] { return choice->run(); };
}

const RegisterCommand kKernel({"kernel", "The kernel for Jupyter: install, run", set_up_kernel});

}  // namespace
}  // namespace lockstep::shell
