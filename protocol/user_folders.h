// Finds folders of the user who runs this process, and decides whether what lies in them can be trusted: another user
// must not have been able to write it, or to put something else in its place.
#pragma once
#include <filesystem>
#include <string>

namespace lockstep::protocol {

/// Returns the folder that the environment variable `variable` names (an absolute path; others are ignored, as the XDG
/// specification wants it), or else `below_home` in the user's home: HOME, or the home that the user database has.
/// Empty where there is none of these.
std::filesystem::path user_folder(const char* variable, const std::filesystem::path& below_home);

/// Returns who else than this user and root could have written `path` (absolute) or exchanged it, as a sentence that
/// names the file or folder at fault; empty when nobody could. Looks at owner and mode of `path`, of every folder above
/// it and of every symbolic link on the way. The part of `path` that is not there is left out. A group may write where
/// it is the user's own, of the same name; a folder with the sticky bit may be open to all.
std::string writable_by_others(const std::filesystem::path& path);

}  // namespace lockstep::protocol
