// Shell, compiler and worker compare these versions at the door (rule 12).
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

inline constexpr const char* kVersion = "0.2.0";

/// Raised when a program of the last release would misread a message (CONTRIBUTING.md, Versions). There is no release
/// yet, so programs and wheels of different commits are not told apart: install them from the same one.
inline constexpr int kProtocolVersion = 2;

/// These have to be equal for two programs of a session to work together.
struct Versions {
  int protocol = kProtocolVersion;
  std::string lockstep = kVersion;
  std::string libtorch;  // "2.11.0"; empty for the shell, which has none
  std::string compiler;  // "clang 19.1.7"; empty for all but the compiler
  bool operator==(const Versions&) const = default;
};
void to_json(nlohmann::json& json, const Versions& versions);
void from_json(const nlohmann::json& json, Versions& versions);

}  // namespace lockstep
