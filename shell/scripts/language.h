// Names the language of a cell.
#pragma once

namespace lockstep::shell {

enum class Language { cpp, python };

}  // namespace lockstep::shell
