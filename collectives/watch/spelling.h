// Spells in messages what their reader types, in C++ or in Python. Code that both languages call writes findings and
// errors, and takes names from here instead of spelling them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

enum class Language : uint8_t { cpp, python };

/// Sets the language of the program that reads the messages of this process. It begins as C++. From any thread.
void set_language(Language language);
Language language();

/// Returns a function by its name in C++: "dist::all_reduce" or "torch.distributed.all_reduce".
std::string dist_name(std::string_view function);
/// Returns "inspect::watch_grads" or "lockstep.watch_grads". Names that differ are translated: "replay" is
/// "lockstep.nan_trace".
std::string inspect_name(std::string_view function);
/// Returns "torch::empty_like" or "torch.empty_like".
std::string torch_name(std::string_view function);
/// Returns an option of an inspector: "--batch-size N", as magics have it, or "batch_size=N".
std::string option_text(std::string_view name, std::string_view value);

/// Has the spellings of what has no name in common.
struct Spelling {
  const char* cpp;
  const char* python;
  const char* text() const { return language() == Language::python ? python : cpp; }
};

namespace spelling {

inline constexpr Spelling kSeed{"set_seed(n)", "torch.manual_seed(n)"};
inline constexpr Spelling kFindUnused{"find_unused_parameters(true)", "find_unused_parameters=True"};
inline constexpr Spelling kSamplerCopy{" (a DataLoader has a copy of the sampler that it was made with)", ""};
inline constexpr Spelling kRecordOperators{"%timeline on, or inspect::record_operators(), records operators",
                                           "lockstep.record_operators() records operators"};
inline constexpr Spelling kAfterALoss{", and dist::regroup after a rank is lost", ""};
inline constexpr Spelling kFloat{"torch::kFloat32", "torch.float32"};
inline constexpr Spelling kInteger{"torch::kInt64", "torch.int64"};
inline constexpr Spelling kComplex{"torch::kComplexFloat", "torch.complex64"};
inline constexpr Spelling kDevice{"device", "device=device"};
inline constexpr Spelling kUnnamed{"t.rename(std::nullopt)", "t.rename(None)"};
inline constexpr Spelling kSameTensors{"std::vector<torch::Tensor>(n, t)", "[t] * n"};

}  // namespace spelling

}  // namespace lockstep
