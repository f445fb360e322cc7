// What inspectors can do on the fake device: the bodies of the kernels for GPUs, run as a grid by the stream's thread.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <atomic>

#include "cuda/launch_plan.h"
#include "inspectors/device/functions.h"
#include "tests/cuda/cpu_grid.h"
#include "tests/support/fake_device/runtime.h"

namespace lockstep::fake {
namespace {

using cuda::LaunchPlan;

std::atomic<int64_t> fingerprints = 0, sentinels = 0;

/// A plan's table on the device, by a copy that is queued on the current stream.
at::Tensor table_of(const LaunchPlan& plan, c10::Device device) {
  const auto bytes = static_cast<int64_t>(plan.table_bytes());
  const at::Tensor host = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  plan.write_table(host.mutable_data_ptr<uint8_t>());
  at::Tensor table = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device));
  return table.copy_(host, /*non_blocking=*/true);
}

Queue& queue_for(c10::Device device) { return Runtime::get().queue_of(current_stream(device.index())); }

at::Tensor fingerprint(at::TensorList tensors) {
  const c10::DeviceGuard guard(tensors[0].device());
  const at::NoGradGuard no_grad;
  const LaunchPlan plan(tensors, LaunchPlan::Purpose::fingerprint);
  const at::Tensor table = table_of(plan, tensors[0].device());
  const at::Tensor scratch = at::empty({static_cast<int64_t>(plan.scratch_bytes())}, table.options());
  const auto launch =
      plan.fingerprint_launch(static_cast<uint8_t*>(table.data_ptr()), static_cast<uint8_t*>(scratch.data_ptr()));
  if (plan.blocks() > 0)
    queue_for(tensors[0].device()).add("fingerprint", [launch, blocks = plan.blocks()] {
      run_grid(launch, blocks, cuda::GridOrder::shuffled);
    });
  ++fingerprints;
  const auto count = static_cast<int64_t>(plan.tensors());
  return table.narrow(0, static_cast<int64_t>(plan.output_offset()), count * 48).view(at::kLong).view({count, 6});
}

at::Tensor first_bad(at::TensorList tensors) {
  const c10::DeviceGuard guard(tensors[0].device());
  const at::NoGradGuard no_grad;
  const LaunchPlan plan(tensors, LaunchPlan::Purpose::sentinel);
  const at::Tensor table = table_of(plan, tensors[0].device());
  const auto launch = plan.sentinel_launch(static_cast<uint8_t*>(table.data_ptr()));
  if (plan.blocks() > 0)
    queue_for(tensors[0].device()).add("sentinel", [launch, blocks = plan.blocks()] {
      run_grid(launch, blocks, cuda::GridOrder::shuffled);
    });
  ++sentinels;
  return table.narrow(0, static_cast<int64_t>(plan.output_offset()), sizeof(int32_t)).view(at::kInt);
}

const inspect::DeviceFunctions functions{.fingerprint = fingerprint, .first_bad = first_bad};

}  // namespace

void use_device_functions(bool on) {
  inspect::set_device_functions(c10::DeviceType::PrivateUse1, on ? &functions : nullptr);
}

int64_t fingerprints_queued() { return fingerprints; }
int64_t sentinels_queued() { return sentinels; }

}  // namespace lockstep::fake
