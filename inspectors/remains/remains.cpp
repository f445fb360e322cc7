#include "inspectors/remains/remains.h"

#include <algorithm>
#include <array>

namespace lockstep::inspect {

namespace {

bool is_frozen(const EvidenceFrame& frame) { return frame.file.starts_with("<frozen"); }

}  // namespace

bool is_of_program(const EvidenceFrame& frame) {
  // A folder of the user may be called torch, or end so: pytorch/train.py.
  constexpr std::array kOthers = {"/site-packages/", "/dist-packages/", "/lib/python", "/torch/nn/", "/torch/_",
                                  "/torch/optim/", "/torch/utils/", "/torch/distributed/", "/torch/autograd/",
                                  // Templates of headers, which are functions of the program without optimization.
                                  "/include/c++/", "/torch/include/"};
  return !is_frozen(frame) && !frame.file.starts_with("torch/") &&
         std::ranges::none_of(kOthers, [&](const char* each) { return frame.file.find(each) != std::string::npos; });
}

const EvidenceFrame* program_frame(const std::vector<EvidenceFrame>& frames) {
  const auto own = std::ranges::find_if(frames, is_of_program);
  if (own != frames.end()) return &*own;
  const auto readable = std::ranges::find_if_not(frames, is_frozen);
  if (readable != frames.end()) return &*readable;
  return frames.empty() ? nullptr : &frames.front();
}

}  // namespace lockstep::inspect
