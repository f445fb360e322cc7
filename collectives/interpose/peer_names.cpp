// c10d's store looks up the name of every address that it connects to, only for a line of its log. It passes an IPv4
// address in its IPv6 form (::ffff:127.0.0.1), which is not in /etc/hosts, so that the resolver asks the name server
// even for 127.0.0.1. If that answer is lost, connecting waits for the resolver's time limit, 5 s for each attempt.
// Such an address is therefore shown as a number.
#include <netdb.h>
#include <netinet/in.h>

#include "protocol/next_function.h"

/// Stands in front of the C library's function.
extern "C" int getnameinfo(const sockaddr* address, socklen_t size, char* host, socklen_t host_size, char* service,
                           socklen_t service_size, int flags) {
  auto* const real = lockstep::next_function<"getnameinfo", decltype(getnameinfo)>();
  if (address && address->sa_family == AF_INET6 && size >= sizeof(sockaddr_in6) && !(flags & NI_NAMEREQD) &&
      IN6_IS_ADDR_V4MAPPED(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr))
    flags |= NI_NUMERICHOST;
  return real(address, size, host, host_size, service, service_size, flags);
}
