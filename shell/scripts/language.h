// What a cell is written in.
#pragma once

namespace lockstep::shell {

enum class Language { cpp, python };

}  // namespace lockstep::shell
