// Writes the text of tensors in PyTorch's form: tensor([[1., 2.]], size=(1, 2), dtype=float32, device='cpu'). The rules
// for widths, digits and scientific notation are those of torch/_tensor_str.py.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "collectives/log/collective_op.h"
#include "worker/cell/show.h"
#include "worker/cell/show_text.h"
#include "worker/cell/values.h"

namespace lockstep {
namespace {

constexpr size_t kIndentOfText = 7;  // of "tensor("

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

struct Settings {
  int precision = 4;
  int64_t threshold = 1000;
  int64_t edgeitems = 3;
  int linewidth = 80;
  std::optional<bool> sci_mode;
  bool ranks_as_range = false;
};

Settings& settings() {
  static Settings now;
  return now;
}

std::string formatted(const char* format, int precision, double value) {
  char text[400];
  std::snprintf(text, sizeof text, format, precision, value);
  return text;
}

/// Says how the real numbers of a tensor are written, all of them alike.
class NumberFormat {
 public:
  /// `values` will be written.
  explicit NumberFormat(const std::vector<double>& values) : digits_(settings().precision) {
    double smallest = std::numeric_limits<double>::infinity(), largest = 0;
    for (const double value : values) {
      if (!std::isfinite(value) || value == 0) continue;
      const double magnitude = std::abs(value);
      smallest = std::min(smallest, magnitude);
      largest = std::max(largest, magnitude);
      if (value != std::ceil(value)) whole_ = false;
    }
    if (largest > 0) {
      const bool wide = largest / smallest > 1000 || largest > 1e8;
      scientific_ = whole_ ? wide : wide || smallest < 1e-4;
    }
    if (settings().sci_mode) scientific_ = *settings().sci_mode;
    for (const double value : values) width_ = std::max(width_, text_of(value).size());
  }

  std::string operator()(double value) const {
    const std::string text = text_of(value);
    return std::string(width_ - std::min(width_, text.size()), ' ') + text;
  }

 private:
  std::string text_of(double value) const {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
    if (scientific_) return formatted("%.*e", digits_, value);
    if (whole_) return formatted("%.*f", 0, value) + ".";
    return formatted("%.*f", digits_, value);
  }

  const int digits_;
  bool whole_ = true, scientific_ = false;
  size_t width_ = 1;
};

/// Returns the elements that are written, as texts of one width, in the order of `shape`.
std::vector<std::string> texts_of(const at::Tensor& part) {
  const at::Tensor flat = part.resolve_conj().resolve_neg().to(at::kCPU).reshape({-1}).contiguous();
  std::vector<std::string> texts;
  texts.reserve(static_cast<size_t>(flat.numel()));
  const auto type = flat.scalar_type();
  if (flat.is_complex()) {
    const at::Tensor both = at::view_as_real(flat.to(at::kComplexDouble)).contiguous();
    const auto* numbers = both.const_data_ptr<double>();
    std::vector<double> real, imaginary;
    for (int64_t i = 0; i < flat.numel(); ++i) {
      real.push_back(numbers[2 * i]);
      imaginary.push_back(std::abs(numbers[2 * i + 1]));
    }
    const NumberFormat of_real(real), of_imaginary(imaginary);
    for (int64_t i = 0; i < flat.numel(); ++i) {
      const auto k = static_cast<size_t>(i);
      std::string second = of_imaginary(imaginary[k]);
      second.erase(0, second.find_first_not_of(' '));
      texts.push_back(of_real(real[k]) + (std::signbit(numbers[2 * i + 1]) ? "-" : "+") + second + "j");
    }
  } else if (at::isFloatingType(type)) {
    const at::Tensor wide = flat.to(at::kDouble);
    const auto* numbers = wide.const_data_ptr<double>();
    const std::vector<double> values(numbers, numbers + wide.numel());
    const NumberFormat format(values);
    for (const double value : values) texts.push_back(format(value));
  } else if (type == at::kBool) {
    const auto* values = flat.const_data_ptr<bool>();
    for (int64_t i = 0; i < flat.numel(); ++i) texts.emplace_back(values[i] ? "True" : "False");
  } else if (type == at::kUInt64) {
    const auto* values = flat.const_data_ptr<uint64_t>();
    for (int64_t i = 0; i < flat.numel(); ++i) texts.push_back(std::to_string(values[i]));
  } else {
    const at::Tensor wide = flat.to(at::kLong);
    const auto* values = wide.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < wide.numel(); ++i) texts.push_back(std::to_string(values[i]));
  }
  size_t width = 0;
  for (const std::string& text : texts) width = std::max(width, text.size());
  for (std::string& text : texts) text.insert(0, width - text.size(), ' ');
  return texts;
}

/// Returns both ends of each dimension that is longer than them.
at::Tensor edges_of(at::Tensor tensor, int64_t edge) {
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    const int64_t size = tensor.size(dim);
    if (size > 2 * edge) tensor = at::cat({tensor.narrow(dim, 0, edge), tensor.narrow(dim, size - edge, edge)}, dim);
  }
  return tensor;
}

/// Writes brackets and elements; `sizes` are those of the tensor, `texts` its elements or those of its edges.
class Writer {
 public:
  Writer(at::IntArrayRef sizes, std::vector<std::string> texts, bool edges_only)
      : sizes_(sizes), texts_(std::move(texts)), edge_(settings().edgeitems), edges_only_(edges_only) {}

  std::string run(size_t indent) {
    write(0, indent);
    return std::move(out_);
  }

 private:
  bool is_cut(size_t dim) const { return edges_only_ && sizes_[dim] > 2 * edge_; }
  int64_t written(size_t dim) const { return is_cut(dim) ? 2 * edge_ : sizes_[dim]; }

  void write(size_t dim, size_t indent) {
    if (dim == sizes_.size()) {
      out_ += texts_[next_++];
      return;
    }
    out_ += '[';
    if (dim + 1 == sizes_.size())
      row(dim, indent);
    else
      for (int64_t i = 0; i < written(dim); ++i) {
        const std::string separator = "," + std::string(sizes_.size() - dim - 1, '\n') + std::string(indent + 1, ' ');
        if (i > 0) out_ += separator;
        if (is_cut(dim) && i == edge_) out_ += "..." + separator;
        write(dim + 1, indent + 1);
      }
    out_ += ']';
  }

  void row(size_t dim, size_t indent) {
    const size_t width = texts_.empty() ? 1 : texts_.front().size() + 2;
    const size_t room = static_cast<size_t>(settings().linewidth) > indent ? settings().linewidth - indent : 1;
    const auto in_line = static_cast<int64_t>(std::max<size_t>(1, room / width));
    int64_t place = 0;
    const auto separate = [&] {
      if (place > 0) out_ += place % in_line == 0 ? ",\n" + std::string(indent + 1, ' ') : ", ";
      ++place;
    };
    for (int64_t i = 0; i < written(dim); ++i) {
      if (is_cut(dim) && i == edge_) {
        separate();
        out_ += "...";
      }
      separate();
      out_ += texts_[next_++];
    }
  }

  at::IntArrayRef sizes_;
  std::vector<std::string> texts_;
  size_t next_ = 0;
  int64_t edge_;
  bool edges_only_;
  std::string out_;
};

std::string size_text(at::IntArrayRef sizes) {
  std::string text = "(";
  for (size_t i = 0; i < sizes.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(sizes[i]);
  return text + (sizes.size() == 1 ? ",)" : ")");
}

/// Returns requires_grad=True or grad_fn=<AddBackward0>, if there is one.
std::vector<std::string> gradient_of(const at::Tensor& tensor) {
  if (const auto& node = tensor.grad_fn()) {
    std::string name = node->name();
    if (const size_t scope = name.rfind("::"); scope != std::string::npos) name.erase(0, scope + 2);
    return {"grad_fn=<" + name + ">"};
  }
  if (tensor.requires_grad()) return {"requires_grad=True"};
  return {};
}

/// Returns size=(2, 3), dtype=float32, device='cpu', grad_fn=<AddBackward0>.
std::vector<std::string> properties_of(const at::Tensor& tensor) {
  std::vector<std::string> words;
  if (tensor.dim() > 0) words.push_back("size=" + size_text(tensor.sizes()));
  words.push_back(std::string("dtype=") + dist::dtype_name(static_cast<uint8_t>(tensor.scalar_type())));
  words.push_back("device='" + tensor.device().str() + "'");
  if (tensor.layout() != at::kStrided) {
    std::ostringstream layout;
    layout << tensor.layout();
    words.push_back("layout=" + layout.str());
  }
  for (std::string& word : gradient_of(tensor)) words.push_back(std::move(word));
  return words;
}

std::string with_properties(std::string text, const std::vector<std::string>& words) {
  const auto limit = static_cast<size_t>(settings().linewidth);
  size_t line = text.size() - (text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);
  bool is_first = text.ends_with(' ') || text.ends_with('(');
  for (const std::string& word : words) {
    if (!is_first && line + word.size() + 3 > limit) {
      text += ",\n" + std::string(kIndentOfText, ' ') + word;
      line = kIndentOfText + word.size();
    } else {
      text += (is_first ? "" : ", ") + word;
      line += word.size() + 2;
    }
    is_first = false;
  }
  return text + ")";
}

/// Returns the tensors of a sparse tensor, with their names.
std::vector<std::pair<std::string, at::Tensor>> parts_of(const at::Tensor& tensor) {
  if (tensor.layout() == at::kSparse) {
    const at::Tensor flat = tensor.coalesce();
    return {{"indices", flat.indices()}, {"values", flat.values()}};
  }
  if (tensor.layout() == at::kSparseCsr || tensor.layout() == at::kSparseBsr)
    return {
        {"crow_indices", tensor.crow_indices()}, {"col_indices", tensor.col_indices()}, {"values", tensor.values()}};
  return {{"ccol_indices", tensor.ccol_indices()}, {"row_indices", tensor.row_indices()}, {"values", tensor.values()}};
}

/// Writes each tensor in it on lines of its own.
std::string text_of_nested(const at::Tensor& tensor) {
  std::string text = "nested_tensor([";
  for (const at::Tensor& part : tensor.detach().unbind()) {
    std::string shown = "\n" + text_of_tensor(part);
    for (size_t at = 0; (at = shown.find('\n', at)) != std::string::npos;) shown.insert(++at, "  ");
    text += (text.ends_with('[') ? "" : ",") + shown;
  }
  return with_properties(text + (text.ends_with('[') ? "]" : "\n]"), gradient_of(tensor));
}

}  // namespace

void set_show_options(const ShowOptions& options) {
  Settings next = settings();
  if (options.profile) {
    if (*options.profile == "default") {
      next = {.sci_mode = {}, .ranks_as_range = next.ranks_as_range};
    } else if (*options.profile == "short") {
      next = {.precision = 2, .edgeitems = 2, .sci_mode = {}, .ranks_as_range = next.ranks_as_range};
    } else if (*options.profile == "full") {
      next = {.threshold = kNoLimit, .sci_mode = {}, .ranks_as_range = next.ranks_as_range};
    } else {
      throw std::invalid_argument("show::options: there is no profile '" + *options.profile +
                                  "'; profiles are default, short and full");
    }
  }
  const auto check = [](const char* name, int64_t value, int64_t least, int64_t most) {
    if (value < least || value > most)
      throw std::invalid_argument("show::options: " + std::string(name) + " is " + std::to_string(value) +
                                  "; it is at least " + std::to_string(least) + " and at most " + std::to_string(most));
  };
  if (options.precision) check("precision", *options.precision, 0, 17), next.precision = *options.precision;
  if (options.threshold)
    check("threshold", *options.threshold, 0, std::numeric_limits<int64_t>::max()), next.threshold = *options.threshold;
  if (options.edgeitems) check("edgeitems", *options.edgeitems, 1, 1000), next.edgeitems = *options.edgeitems;
  if (options.linewidth) check("linewidth", *options.linewidth, 20, 10000), next.linewidth = *options.linewidth;
  if (options.sci_mode) next.sci_mode = options.sci_mode;
  if (options.ranks) {
    if (*options.ranks != "each" && *options.ranks != "range")
      throw std::invalid_argument("show::options: ranks is '" + *options.ranks + "'; it is each or range");
    next.ranks_as_range = *options.ranks == "range";
  }
  settings() = next;
}

bool shows_ranks_as_range() { return settings().ranks_as_range; }

std::string text_of_tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) return "[ Tensor (undefined) ]";
  if (tensor.is_quantized() || tensor.is_mkldnn()) {
    std::ostringstream out;
    out << tensor;
    return out.str();
  }
  const at::NoGradGuard no_grad;
  if (tensor.is_nested()) return text_of_nested(tensor);
  const std::vector<std::string> words = properties_of(tensor);
  std::string text = "tensor(";
  if (tensor.is_meta()) return with_properties(text + "...", words);
  if (tensor.layout() != at::kStrided) {
    for (const auto& [name, part] : parts_of(tensor)) {
      std::string shown = name + "=" + text_of_tensor(part);
      const std::string indent(kIndentOfText + name.size() + 1, ' ');
      for (size_t at = shown.find('\n'); at != std::string::npos; at = shown.find('\n', at + 1))
        shown.insert(at + 1, indent);
      text += shown + ",\n" + std::string(kIndentOfText, ' ');
    }
    return with_properties(text, words);
  }
  const at::Tensor plain = tensor.detach();
  const bool edges_only = plain.numel() > settings().threshold && !worker::shows_in_full();
  if (plain.numel() == 0)
    text += "[]";
  else
    text += Writer(plain.sizes(), texts_of(edges_only ? edges_of(plain, settings().edgeitems) : plain), edges_only)
                .run(text.size());
  return with_properties(std::move(text), words);
}

}  // namespace lockstep
