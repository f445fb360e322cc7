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

/// In logical order; complex numbers as two. On the CPU as doubles; on a device in a dtype that its operators support.
at::Tensor as_reals(const at::Tensor& tensor) {
  at::Tensor values = float_values(tensor);
  if (!values.defined()) return values;
  values = values.detach();
  if (values.is_complex()) values = at::view_as_real(values.resolve_conj());
  if (values.is_cpu()) return values.to(at::kDouble).contiguous();
  return values.scalar_type() == at::kDouble ? values : values.to(at::kFloat);
}

struct Range {
  double least = std::numeric_limits<double>::infinity(), greatest = -least;  // of finite values
  int64_t nan = 0, above = 0, below = 0;  // numbers of NaN, Inf and -Inf
};

Range range_of_doubles(const at::Tensor& values) {
  Range range;
  const double* data = values.const_data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    if (std::isnan(data[i])) {
      ++range.nan;
    } else if (std::isinf(data[i])) {
      ++(data[i] > 0 ? range.above : range.below);
    } else {
      range.least = std::min(range.least, data[i]);
      range.greatest = std::max(range.greatest, data[i]);
    }
  }
  return range;
}

Range range_on_device(const at::Tensor& values) {
  const double infinity = std::numeric_limits<double>::infinity();
  const at::Tensor finite = values.isfinite();
  const auto number = [](const at::Tensor& each) { return each.to(at::kDouble); };
  const at::Tensor answers =
      at::stack({number(at::where(finite, values, at::full_like(values, infinity)).amin()),
                 number(at::where(finite, values, at::full_like(values, -infinity)).amax()),
                 number(values.isnan().sum()), number(values.eq(infinity).sum()), number(values.eq(-infinity).sum())})
          .cpu();
  const double* answer = answers.const_data_ptr<double>();
  return {.least = answer[0],
          .greatest = answer[1],
          .nan = static_cast<int64_t>(answer[2]),
          .above = static_cast<int64_t>(answer[3]),
          .below = static_cast<int64_t>(answer[4])};
}

/// The index of the first value that is not finite; -1 without one.
int64_t first_bad_of(const at::Tensor& values) {
  if (!values.is_cpu()) {
    const at::Tensor bad = values.isfinite().logical_not().reshape({-1}).to(at::kByte);
    const at::Tensor answers = at::stack({bad.argmax(), bad.amax().to(at::kLong)}).cpu();
    return answers[1].item<int64_t>() ? answers[0].item<int64_t>() : -1;
  }
  const double* data = values.const_data_ptr<double>();
  const double* found = std::find_if_not(data, data + values.numel(), [](double x) { return std::isfinite(x); });
  return found == data + values.numel() ? -1 : found - data;
}

}  // namespace

bool dispatches_in_python(const at::Tensor& tensor) { return tensor.key_set().has(c10::DispatchKey::Python); }

at::Tensor float_values(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_meta() || dispatches_in_python(tensor)) return {};
  if (!c10::isFloatingType(tensor.scalar_type()) && !c10::isComplexType(tensor.scalar_type())) return {};
  at::Tensor values = tensor.is_sparse() ? tensor._values() : tensor;
  if (values.layout() != at::kStrided || !values.has_storage()) return {};
  return values;
}

BadValues bad_values(const at::Tensor& tensor) { return bad_values(at::TensorList(tensor)).front(); }

std::vector<BadValues> bad_values(at::TensorList tensors) {
  std::vector<BadValues> found(tensors.size());
  std::vector<at::Tensor> readable;
  std::vector<size_t> indices;
  for (size_t i = 0; i < tensors.size(); ++i) {
    at::Tensor values = float_values(tensors[i]);
    if (!values.defined() || values.numel() == 0) continue;
    readable.push_back(std::move(values));
    indices.push_back(i);
  }
  if (readable.empty()) return found;
  const std::vector<Fingerprint> marks = fingerprint(readable);
  for (size_t i = 0; i < marks.size(); ++i) found[indices[i]] = {.nan = marks[i].nan_count, .inf = marks[i].inf_count};
  return found;
}

bool has_integer_values(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_meta() && !dispatches_in_python(tensor) && !tensor.is_quantized() &&
         tensor.layout() == at::kStrided && tensor.has_storage() &&
         c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

namespace {

/// Integers with all digits, since they may be indices or classes.
std::string integer_range_text(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().to(at::kLong).reshape({-1});
  if (values.numel() == 0) return "[]";
  if (tensor.scalar_type() == at::kBool)
    return fmt::format("{} of {} true", values.sum().item<int64_t>(), values.numel());
  return fmt::format("[{}, {}]", values.amin().item<int64_t>(), values.amax().item<int64_t>());
}

}  // namespace

std::string range_text(const at::Tensor& tensor) {
  if (has_integer_values(tensor)) return integer_range_text(tensor);
  const at::Tensor values = as_reals(tensor);
  if (!values.defined() || values.numel() == 0) return "[]";
  const auto [least, greatest, nan, above, below] =
      values.is_cpu() ? range_of_doubles(values) : range_on_device(values);
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
  const at::Tensor values = as_reals(tensor);
  if (!values.defined() || values.numel() == 0 || tensor.is_sparse()) return {};
  const int64_t found = first_bad_of(values);
  if (found < 0) return {};
  int64_t element = found / (tensor.is_complex() ? 2 : 1);
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
