// `lockstep relay` is started by sessions, `lockstep run` and `lockstep attach` on other machines; with a ticket by any
// launcher.
#include <unistd.h>

#include <memory>
#include <string>

#include "protocol/environment.h"
#include "protocol/launchers.h"
#include "shell/commands/command.h"
#include "shell/hosts/host.h"
#include "shell/link/link_client.h"
#include "shell/relay/relay.h"
#include "shell/text/text_output.h"

namespace lockstep::shell {
namespace {

struct RelayFlags {
  bool has_hub = false;
  std::string ticket;
};

int relay_over_link(const RelayFlags& flags) {
  nlohmann::json about = {{"host", this_host()}, {"pid", ::getpid()}};
  if (const auto numbers = protocol::launched_rank(protocol::variable)) {
    about["rank"] = numbers->rank;
    about["world_size"] = numbers->world_size;
    about["local_rank"] = numbers->local_rank.value_or(0);
    about["local_size"] = numbers->local_world_size;
  }
  LinkClient link(read_ticket(flags.ticket), about, write_message);
  const Descriptor session = link.take_descriptor();
  return run_relay(session.get(), session.get(), /*has_hub=*/true);
}

std::function<int()> set_up_relay(CLI::App& app) {
  const auto flags = std::make_shared<RelayFlags>();
  app.add_flag("--hub", flags->has_hub, "Let ranks of this machine come to a prompt on the other one");
  app.add_option("--ticket", flags->ticket,
                 "Connect to the session that has made this file; -: it comes through the standard input")
      ->type_name("FILE");
  app.footer(
      "Started by lockstep on another machine (--hosts), or by a launcher (--ticket). It ends when its standard input\n"
      "does, or with --ticket when the session ends or has not been heard for 60 s.");
  return [flags] {
    return flags->ticket.empty() ? run_relay(STDIN_FILENO, STDOUT_FILENO, flags->has_hub) : relay_over_link(*flags);
  };
}

const RegisterCommand kRelay({"relay", "This machine's part of a job or session of another one", set_up_relay});

}  // namespace
}  // namespace lockstep::shell
