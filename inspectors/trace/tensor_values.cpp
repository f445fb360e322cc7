#include "inspectors/trace/tensor_values.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "collectives/log/collective_op.h"

namespace lockstep::inspect {
namespace {

/// As doubles on the CPU, in logical order; complex numbers as two.
at::Tensor as_doubles(const at::Tensor& tensor) {
  at::Tensor values = float_values(tensor);
  if (!values.defined()) return values;
  values = values.detach().cpu();
  if (values.is_complex()) values = at::view_as_real(values.resolve_conj());
  return values.to(at::kDouble).contiguous();
}

}  // namespace

at::Tensor float_values(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_meta()) return {};
  if (!c10::isFloatingType(tensor.scalar_type()) && !c10::isComplexType(tensor.scalar_type())) return {};
  at::Tensor values = tensor.is_sparse() ? tensor._values() : tensor;
  if (values.layout() != at::kStrided || !values.has_storage()) return {};
  return values;
}

BadValues bad_values(const at::Tensor& tensor) {
  const at::Tensor values = float_values(tensor);
  if (!values.defined() || values.numel() == 0) return {};
  const Fingerprint mark = fingerprint(values);
  return {.nan = mark.nan_count, .inf = mark.inf_count};
}

bool has_integer_values(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_meta() && !tensor.is_quantized() && tensor.layout() == at::kStrided &&
         tensor.has_storage() && c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

namespace {

/// Integers with all digits, since they may be indices or classes.
std::string integer_range_text(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().cpu().to(at::kLong).reshape({-1});
  if (values.numel() == 0) return "[]";
  const auto [least, greatest] = values.aminmax();
  const auto first = least.item<int64_t>(), last = greatest.item<int64_t>();
  if (tensor.scalar_type() == at::kBool)
    return fmt::format("{} of {} true", values.sum().item<int64_t>(), values.numel());
  return fmt::format("[{}, {}]", first, last);
}

}  // namespace

std::string range_text(const at::Tensor& tensor) {
  if (has_integer_values(tensor)) return integer_range_text(tensor);
  const at::Tensor values = as_doubles(tensor);
  if (!values.defined() || values.numel() == 0) return "[]";
  double least = std::numeric_limits<double>::infinity(), greatest = -least;
  int64_t nan = 0, above = 0, below = 0;
  const double* data = values.const_data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    if (std::isnan(data[i])) {
      ++nan;
    } else if (std::isinf(data[i])) {
      ++(data[i] > 0 ? above : below);
    } else {
      least = std::min(least, data[i]);
      greatest = std::max(greatest, data[i]);
    }
  }
  std::string text = least <= greatest ? fmt::format("[{:.3g}, {:.3g}]", least, greatest) : "no finite value";
  const auto add = [&](int64_t count, const char* what) {
    if (count > 0) text += fmt::format(", {} {}", count, what);
  };
  add(nan, "NaN");
  add(above, "Inf");
  add(below, "-Inf");
  return text;
}

std::vector<int64_t> first_bad(const at::Tensor& tensor) {
  const at::Tensor values = as_doubles(tensor);
  if (!values.defined() || tensor.is_sparse()) return {};
  const double* data = values.const_data_ptr<double>();
  const double* found = std::find_if_not(data, data + values.numel(), [](double x) { return std::isfinite(x); });
  if (found == data + values.numel()) return {};
  int64_t element = (found - data) / (tensor.is_complex() ? 2 : 1);
  std::vector<int64_t> index(static_cast<size_t>(tensor.dim()));
  for (size_t i = index.size(); i-- > 0;) {
    index[i] = element % tensor.size(static_cast<int64_t>(i));
    element /= tensor.size(static_cast<int64_t>(i));
  }
  return index;
}

std::string dtype_text(at::ScalarType dtype) { return dist::dtype_name(static_cast<uint8_t>(dtype)); }

std::string shape_text(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", dtype_text(tensor.scalar_type()), fmt::join(tensor.sizes().vec(), ", "));
}

FindingTensor finding_tensor(std::string name, const at::Tensor& tensor) {
  FindingTensor result;
  result.name = std::move(name);
  result.dtype = dtype_text(tensor.scalar_type());
  result.shape = tensor.sizes().vec();
  return result;
}

}  // namespace lockstep::inspect
