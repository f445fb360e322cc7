// A ticket is a file that lets programs of this user connect to a session from other machines: where it listens, and the
// keys of CURVE (RFC 26 of ZeroMQ) by which both ends know one another. Who can read it can come in, so only its owner can.
#pragma once
#include <string>
#include <vector>

#include "protocol/json_fields.h"

namespace lockstep::shell {

struct LinkTicket {
  std::string session;  // 128 random bits
  std::vector<std::string> addresses;  // of the machine that listens; tried one after the other
  int port = 0;
  std::string server_key;  // public
  std::string key;  // secret, of those who have this ticket: each makes a pair of its own, and names that by this one
};

LOCKSTEP_JSON(LinkTicket, session, addresses, port, server_key, key)

/// Takes the place of the file at `path` at once; mode 0600. Throws Error.
void write_ticket(const std::string& path, const LinkTicket& ticket);

/// Reads the ticket at `path`, or where that is "-" from the standard input to its end. Throws UsageError for a file that
/// others can read, could have written or exchanged, and for what is no ticket. No message has a key in it.
LinkTicket read_ticket(const std::string& path);

}  // namespace lockstep::shell
