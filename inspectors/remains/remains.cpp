#include "inspectors/remains/remains.h"

#include <algorithm>
#include <array>

namespace lockstep::inspect {

const EvidenceFrame* program_frame(const std::vector<EvidenceFrame>& frames) {
  // A folder of the user may be called torch, or end so: pytorch/train.py.
  constexpr std::array kOthers = {"/site-packages/", "/dist-packages/", "/lib/python",   "/torch/nn/",
                                  "/torch/_",        "/torch/optim/",   "/torch/utils/", "/torch/distributed/",
                                  "/torch/autograd/"};
  const auto is_frozen = [](const EvidenceFrame& frame) { return frame.file.starts_with("<frozen"); };
  const auto own = std::ranges::find_if(frames, [&](const EvidenceFrame& frame) {
    return !is_frozen(frame) && !frame.file.starts_with("torch/") &&
           std::ranges::none_of(kOthers, [&](const char* each) { return frame.file.find(each) != std::string::npos; });
  });
  if (own != frames.end()) return &*own;
  const auto readable = std::ranges::find_if_not(frames, is_frozen);
  if (readable != frames.end()) return &*readable;
  return frames.empty() ? nullptr : &frames.front();
}

}  // namespace lockstep::inspect
