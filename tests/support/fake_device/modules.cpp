#include <torch/torch.h>

#include "tests/support/fake_device/fake_device.h"

namespace lockstep::fake {

void move_to(torch::nn::Module& module, c10::Device device) {
  const auto move = [&](const torch::Tensor& tensor) {
    if (tensor.defined()) tensor.unsafeGetTensorImpl()->shallow_copy_from(tensor.detach().to(device).getIntrusivePtr());
  };
  for (const torch::Tensor& each : module.parameters()) move(each);
  for (const torch::Tensor& each : module.buffers()) move(each);
}

}  // namespace lockstep::fake
