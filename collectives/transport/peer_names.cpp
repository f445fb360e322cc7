// LibTorch asks for the name of every address that its store connects to, only to have it for a log line. It gives an IPv4 address
// in the form that IPv6 has for it, which /etc/hosts does not know, so that even 127.0.0.1 is asked of the name server. Where an
// answer of that is lost, connecting stands still for the resolver's time limit, 5 s for each attempt. So such an address is
// its own name.
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>

/// Stands in front of the C library's.
extern "C" int getnameinfo(const sockaddr* address, socklen_t size, char* host, socklen_t host_size, char* service,
                           socklen_t service_size, int flags) {
  using Function = int(const sockaddr*, socklen_t, char*, socklen_t, char*, socklen_t, int);
  static auto* const real = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, "getnameinfo"));
  if (address && address->sa_family == AF_INET6 && size >= sizeof(sockaddr_in6) && !(flags & NI_NAMEREQD) &&
      IN6_IS_ADDR_V4MAPPED(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr))
    flags |= NI_NUMERICHOST;
  return real(address, size, host, host_size, service, service_size, flags);
}
