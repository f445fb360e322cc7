#include "protocol/user_folders.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace lockstep::protocol {

namespace fs = std::filesystem;

namespace {

constexpr int kMaxLinks = 40;  // as the kernel follows

/// Returns an entry of the user or group database, by a reentrant function; nothing where there is none.
template <typename Entry, typename Lookup, typename Take>
std::string look_up(const Lookup& lookup, const Take& take) {
  std::vector<char> buffer(16 << 10);
  Entry entry = {}, *found = nullptr;
  int error;
  while ((error = lookup(&entry, buffer.data(), buffer.size(), &found)) == ERANGE) buffer.resize(buffer.size() * 2);
  return error == 0 && found ? std::string(take(*found)) : std::string();
}

template <typename Take>
std::string of_user(uid_t user, const Take& take) {
  return look_up<passwd>([user](passwd* entry, char* buffer, size_t size,
                                passwd** found) { return ::getpwuid_r(user, entry, buffer, size, found); },
                         take);
}

std::string user_name(uid_t user) {
  const std::string name = of_user(user, [](const passwd& entry) { return entry.pw_name; });
  return name.empty() ? "user " + std::to_string(user) : name;
}

std::string group_name(gid_t group) {
  const std::string name =
      look_up<::group>([group](::group* entry, char* buffer, size_t size,
                               ::group** found) { return ::getgrgid_r(group, entry, buffer, size, found); },
                       [](const ::group& entry) { return entry.gr_name; });
  return name.empty() ? "group " + std::to_string(group) : name;
}

fs::path home() {
  if (const char* variable = std::getenv("HOME"); variable && *variable == '/') return variable;
  const fs::path entry = of_user(::geteuid(), [](const passwd& user) { return user.pw_dir; });
  std::error_code error;
  return entry.is_absolute() && fs::is_directory(entry, error) ? entry : fs::path();
}

std::string problem_of(const fs::path& path, const struct stat& status) {
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    return path.string() + " belongs to " + user_name(status.st_uid);
  if (S_ISLNK(status.st_mode)) return "";  // a link has no mode of its own
  if (S_ISDIR(status.st_mode) && (status.st_mode & S_ISVTX) != 0) return "";
  if ((status.st_mode & S_IWOTH) != 0) return path.string() + " can be written by all users";
  if ((status.st_mode & S_IWGRP) != 0) {
    const std::string group = group_name(status.st_gid);
    if (status.st_gid != 0 && group != user_name(::geteuid()))
      return path.string() + " can be written by the group " + group;
  }
  return "";
}

std::string check(const fs::path& path, int links) {
  fs::path at = "/";
  const fs::path relative = path.relative_path();
  for (auto part = relative.begin(); part != relative.end(); ++part) {
    if (part->empty() || *part == ".") continue;
    if (*part == "..") {
      at = at.parent_path();
      continue;
    }
    const fs::path next = at / *part;
    struct stat status = {};
    if (::lstat(next.c_str(), &status) != 0)
      return errno == ENOENT || errno == ENOTDIR ? "" : next.string() + " can't be looked at: " + std::strerror(errno);
    if (std::string problem = problem_of(next, status); !problem.empty()) return problem;
    if (!S_ISLNK(status.st_mode)) {
      at = next;
      continue;
    }
    if (links == 0) return next.string() + " leads through too many symbolic links";
    std::error_code error;
    fs::path target = fs::read_symlink(next, error);
    if (error) return next.string() + " can't be read: " + error.message();
    if (target.is_relative()) target = at / target;
    for (auto rest = std::next(part); rest != relative.end(); ++rest) target /= *rest;
    return check(target, links - 1);
  }
  return "";
}

}  // namespace

fs::path user_folder(const char* variable, const fs::path& below_home) {
  if (const char* value = std::getenv(variable); value && *value == '/') return value;
  const fs::path folder = home();
  return folder.empty() ? fs::path() : folder / below_home;
}

std::string writable_by_others(const fs::path& path) {
  struct stat root = {};
  if (::stat("/", &root) == 0)
    if (std::string problem = problem_of("/", root); !problem.empty()) return problem;
  return check(path, kMaxLinks);
}

}  // namespace lockstep::protocol
