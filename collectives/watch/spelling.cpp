#include "collectives/watch/spelling.h"

#include <algorithm>
#include <array>
#include <atomic>

namespace lockstep {
namespace {

std::atomic<Language> current{Language::cpp};

bool in_python() { return language() == Language::python; }

// The package for Python calls these functions of inspect:: otherwise.
constexpr std::array<Spelling, 6> kInspectors{{
    {"replay", "nan_trace"},
    {"end_nan_trace", "nan_trace"},
    {"nan", "nan_trace"},
    {"lockstep", "first_difference"},
    {"lockstep_ranks", "first_difference"},
    {"end_lockstep", "first_difference"},
}};

}  // namespace

void set_language(Language language) { current = language; }
Language language() { return current; }

std::string dist_name(std::string_view function) {
  return (in_python() ? "torch.distributed." : "dist::") + std::string(function);
}

std::string inspect_name(std::string_view function) {
  if (!in_python()) return "inspect::" + std::string(function);
  const auto renamed = std::ranges::find(kInspectors, function, &Spelling::cpp);
  return "lockstep." + (renamed == kInspectors.end() ? std::string(function) : renamed->python);
}

std::string torch_name(std::string_view function) {
  return (in_python() ? "torch." : "torch::") + std::string(function);
}

std::string option_text(std::string_view name, std::string_view value) {
  std::string text(name);
  if (in_python()) return text.append("=").append(value);
  std::ranges::replace(text, '_', '-');
  return "--" + text.append(" ").append(value);
}

}  // namespace lockstep
