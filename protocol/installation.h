// Finds the programs of Lockstep, and the LibTorch that they use. Shell and compiler ask the same functions, so that
// cells are compiled for the LibTorch that the workers load.
#pragma once
#include <filesystem>
#include <string>

namespace lockstep::protocol {

/// Returns the folder whose bin/ holds the programs: the prefix of an installation, or a build folder. LOCKSTEP_BIN
/// names the bin/ of another one.
std::filesystem::path programs_prefix();

/// Returns the folder whose bin/ and lib/ have what is linked with LibTorch (lockstep-worker, liblockstep): the prefix;
/// in a wheel PREFIX/torch2.11, for the minor version of the environment's torch. Empty where a wheel has none for it.
std::filesystem::path torch_prefix();

/// Returns the command that gets LibTorch, and names the Debian packages that are missing where there may be some:
/// PREFIX/bin/lockstep-setup in an installation, "tools/setup" in a build folder, pip for a wheel.
std::string setup_command();
bool is_installed();
/// Whether this is an installation without lockstep-compiler, which runs files of `lockstep build` only.
bool is_run_only();
/// Whether the programs are those of the Python package: PREFIX is its folder, and torch lies beside that. It is
/// installed, and run-only until the package lockstep-cells adds the compiler.
bool is_wheel();
/// The command that adds the compiler of C++ cells to a wheel.
inline constexpr const char* kGetCells = "pip install 'lockstep[cells]'";

/// Returns the LibTorch version that the programs were built with: "2.11.0"; in a wheel, which has programs for several,
/// that of the torch they use. Empty where the installation is damaged.
std::string libtorch_version();

/// Returns the version of the LibTorch in `folder`: "2.11.0"; empty where there is none.
std::string version_of_libtorch(const std::filesystem::path& folder);

/// Returns "2.11" for "2.11.0". LibTorch's classes are laid out alike in all versions of a minor one.
std::string minor_of(const std::string& version);

/// Returns a digest of the headers that cells are compiled with. Objects of cells fit workers that have the same. Empty
/// where the installation is damaged.
std::string header_digest();

/// Objects of built files name this as the folder of their session. It is the same in each build, so that a script
/// gives the same file.
inline constexpr const char* kBuiltSession = "/lockstep-build";

/// Returns the folder that all users of this installation share and only its owner writes: LOCKSTEP_HOME, or
/// PREFIX/lib/lockstep/home. It has libtorch/VERSION/torch and the precompiled header (pch/); `lockstep-setup --shared`
/// fills it. It need not exist.
std::filesystem::path shared_home();

struct LibTorch {
  std::filesystem::path folder;  // holds include/ and lib/; empty when there is none
  std::string version;  // "2.11.0", where `problem` is empty
  std::string problem;  // why the programs can't use it; empty when they can
  std::string fix;  // what to do about `problem`

  /// Returns "PROBLEM: FIX".
  std::string sentence() const { return problem + ": " + fix; }
};

/// Finds the LibTorch that the programs use. It has the version that they were built with, which is in
/// PREFIX/lib/lockstep/libtorch.version. The first of these that has it:
///   1. LOCKSTEP_LIBTORCH: when it is set, no other place is looked at;
///   2. the folder that PREFIX/lib/lockstep/libtorch.folder names: where the build found it (not in packages);
///   3. libtorch/VERSION-gpu/torch and libtorch/VERSION/torch in shared_home();
///   4. lockstep/libtorch/VERSION-gpu/torch and lockstep/libtorch/VERSION/torch in the user's cache ($XDG_CACHE_HOME or
///      ~/.cache), where tools/setup and lockstep-setup put it.
/// A wheel takes what LOCKSTEP_LIBTORCH names, or the torch beside the Python package, of any of its minor versions.
LibTorch find_libtorch();

}  // namespace lockstep::protocol
