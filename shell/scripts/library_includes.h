// Makes what %lib compiles, in a session and in `lockstep check`.
#pragma once
#include <string>
#include <vector>

namespace lockstep::shell {

/// Returns C++ that includes `headers` (ops.h, <zlib.h>) as those of a library, which keeps its symbols.
inline std::string library_includes(const std::vector<std::string>& headers) {
  std::string includes = "#pragma lockstep library\n";
  for (const std::string& header : headers)
    includes += "#include " + (header.starts_with('<') ? header : "\"" + header + "\"") + "\n";
  return includes;
}

}  // namespace lockstep::shell
