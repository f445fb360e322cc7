#include "inspectors/remains/remains.h"

#include <algorithm>
#include <array>

namespace lockstep::inspect {

const EvidenceFrame* program_frame(const std::vector<EvidenceFrame>& frames) {
  constexpr std::array kOthers = {"/site-packages/", "/dist-packages/", "/lib/python", "<frozen", "torch/"};
  const auto own = std::ranges::find_if(frames, [&](const EvidenceFrame& frame) {
    return std::ranges::none_of(kOthers, [&](const char* each) { return frame.file.find(each) != std::string::npos; });
  });
  if (own != frames.end()) return &*own;
  return frames.empty() ? nullptr : &frames.front();
}

}  // namespace lockstep::inspect
