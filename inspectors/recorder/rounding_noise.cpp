#include "inspectors/recorder/rounding_noise.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <torch/library.h>

#include <limits>
#include <mutex>
#include <set>
#include <vector>

#include "inspectors/trace/op_trace.h"

namespace lockstep::inspect {
namespace {

struct Generator {
  std::mutex mutex;  // autograd has a thread for each device
  at::Generator generator;
};

Generator& generator() {
  static Generator instance;
  return instance;
}

double half_unit(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return std::numeric_limits<float>::epsilon() / 2;
    case at::kDouble:
      return std::numeric_limits<double>::epsilon() / 2;
    case at::kBFloat16:
      return 0x1p-8;
    case at::kHalf:
      return 0x1p-11;
    default:
      return 0;
  }
}

void perturb(const at::Tensor& tensor) {
  const double half = half_unit(tensor.scalar_type());
  if (half == 0 || tensor.layout() != at::kStrided || tensor.numel() == 0 || !tensor.is_non_overlapping_and_dense())
    return;
  // Not an operation of the program: autograd neither records it nor counts it as a write.
  const at::AutoDispatchBelowADInplaceOrView below;
  at::Tensor signs = at::empty(tensor.sizes(), at::kDouble);
  {
    const std::lock_guard lock(generator().mutex);
    signs.bernoulli_(0.5, generator().generator);
  }
  // In float64: in the dtype itself, 1 + half a unit is 1.
  signs = signs.mul_(2 * half).add_(1 - half).to(tensor.device());
  tensor.copy_(tensor.to(at::kDouble).mul_(signs));
}

void run_and_perturb(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const WithoutRoundingNoise within;
  const c10::FunctionSchema& schema = op.schema();
  std::set<const void*> memory;  // of the arguments
  const auto note = [&](const at::Tensor& each) {
    if (each.has_storage()) memory.insert(each.storage().unsafeGetStorageImpl());
  };
  for (size_t i = stack->size() - schema.arguments().size(); i < stack->size(); ++i) for_each_tensor((*stack)[i], note);
  op.callBoxed(stack);
  // What has no tensor among its arguments makes constants and random numbers. What changes a shape in place computes
  // nothing, and its memory may be the program's data.
  if (memory.empty() || op.hasTag(at::Tag::inplace_view)) return;
  const size_t first = stack->size() - schema.returns().size();
  const Unrecorded unrecorded;
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    const c10::AliasInfo* alias = schema.returns()[i].alias_info();
    const bool is_written = alias && alias->isWrite();
    for_each_tensor((*stack)[first + i], [&](const at::Tensor& each) {
      // A view, or an argument that was handed on, has been changed when it was made, or is a parameter.
      if (is_written || (each.has_storage() && !memory.contains(each.storage().unsafeGetStorageImpl()))) perturb(each);
    });
  }
}

}  // namespace

RoundingNoise::RoundingNoise(int64_t number) {
  static const auto* const library = [] {
    auto* made = new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    made->fallback(torch::CppFunction::makeFromBoxedFunction<&run_and_perturb>());
    return made;  // for as long as the process lives
  }();
  static_cast<void>(library);
  const std::lock_guard lock(generator().mutex);
  generator().generator = at::detail::createCPUGenerator(static_cast<uint64_t>(number));
}

RoundingNoise::~RoundingNoise() { set_on(false); }

void RoundingNoise::set_on(bool on) { c10::impl::tls_set_dispatch_key_included(kKey, on); }

}  // namespace lockstep::inspect
