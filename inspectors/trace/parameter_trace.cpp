#include "inspectors/trace/parameter_trace.h"

#include <algorithm>
#include <cstring>

#include "inspectors/fingerprint/kernels.h"

namespace lockstep::inspect {

uint64_t trace_of(const at::Tensor& parameter) {
  if (!parameter.defined()) return 0;
  uint64_t trace = parameter.is_inference() ? 0 : kernels::mix(parameter._version() + 1);
  if (!parameter.device().is_cpu() || parameter.layout() != at::kStrided || !parameter.is_non_overlapping_and_dense())
    return trace;
  constexpr size_t kSamples = 16;
  const size_t bytes = parameter.nbytes(), element = parameter.element_size();
  if (bytes == 0) return trace;
  const auto* data = static_cast<const uint8_t*>(parameter.const_data_ptr());
  const size_t elements = bytes / element;
  const size_t samples = std::min(kSamples, elements);
  for (size_t i = 0; i < samples; ++i) {
    // The elements are not always in the same column of a matrix.
    const size_t index =
        std::min(elements - 1, i * elements / samples + i * 7 % std::max<size_t>(elements / samples, 1));
    uint64_t value = 0;
    std::memcpy(&value, data + index * element, std::min<size_t>(element, sizeof value));
    trace = kernels::mix(trace ^ (value + i + 1));
  }
  return trace;
}

}  // namespace lockstep::inspect
