// Connects to the session whose ticket this program has (link_server.h), again and again as connections end, and gives a
// descriptor: what is written to it arrives there, and what comes from there can be read from it. It ends when the session
// has ended the stream, has refused it, or has not been heard for LinkLimits::lost_after.
//
// All of it runs on a thread of its own: the owner of the descriptor may write and wait.
#pragma once
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "protocol/descriptor.h"
#include "shell/link/link_messages.h"
#include "shell/link/link_ticket.h"

namespace lockstep::shell {

class LinkClient {
 public:
  /// `about`: what this program says of itself. `says` is called on the thread with what its user should know: that the
  /// session does not answer, answers again, or has been given up, and why. Throws StartError.
  LinkClient(LinkTicket ticket, nlohmann::json about, std::function<void(const std::string&)> says,
             LinkLimits limits = {});
  /// What has been written to the descriptor arrives, within a limit.
  ~LinkClient();
  LinkClient(const LinkClient&) = delete;
  LinkClient& operator=(const LinkClient&) = delete;

  /// The one end of a socket pair, once.
  Descriptor take_descriptor() { return std::move(descriptor_); }

 private:
  class Caller;

  Descriptor descriptor_;
  std::unique_ptr<Caller> caller_;
  std::thread thread_;
};

}  // namespace lockstep::shell
