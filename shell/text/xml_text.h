// Writes text in XML, SVG and HTML.
#pragma once
#include <string>
#include <string_view>

namespace lockstep::shell {

/// Returns text of XML 1.0: special characters as entities, characters that it forbids as U+FFFD.
std::string xml_text(std::string_view text);

}  // namespace lockstep::shell
