// `lockstep relay` is started by `lockstep run` and `lockstep attach` on other machines, never by a person.
#include <memory>

#include "shell/commands/command.h"
#include "shell/relay/relay.h"

namespace lockstep::shell {
namespace {

std::function<int()> set_up_relay(CLI::App& app) {
  const auto has_hub = std::make_shared<bool>(false);
  app.add_flag("--hub", *has_hub, "Let ranks of this machine come to a prompt on the other one");
  app.footer("Started by `lockstep run --hosts …` on another machine. It ends when its standard input does.");
  return [has_hub] { return run_relay(*has_hub); };
}

const RegisterCommand kRelay({"relay", "This machine's part of a job that is judged on another one", set_up_relay});

}  // namespace
}  // namespace lockstep::shell
