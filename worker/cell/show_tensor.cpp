// The text of tensors: LibTorch's own, where that says everything.
#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>

#include "worker/cell/show_text.h"

namespace lockstep {
namespace {

constexpr size_t kLineLength = 80;
constexpr int kDigits = 5;  // LibTorch prints four behind the point

std::string text_of_number(const c10::complex<double>& value) {
  char text[80];
  std::snprintf(text, sizeof text, "%.*g%+.*gi", kDigits, value.real(), kDigits, value.imag());
  return text;
}

/// One row or more of columns as wide as the widest, split where they are too long for a line.
void write_matrix(std::ostream& out, const at::Tensor& matrix) {
  const auto numbers = matrix.accessor<c10::complex<double>, 2>();
  std::vector<std::vector<std::string>> cells(static_cast<size_t>(numbers.size(0)));
  size_t width = 0;
  for (int64_t row = 0; row < numbers.size(0); ++row)
    for (int64_t column = 0; column < numbers.size(1); ++column) {
      cells[static_cast<size_t>(row)].push_back(text_of_number(numbers[row][column]));
      width = std::max(width, cells[static_cast<size_t>(row)].back().size());
    }
  const auto columns = static_cast<size_t>(numbers.size(1));
  const size_t in_line = std::max<size_t>(1, kLineLength / (width + 2));
  for (size_t first = 0; first < columns; first += in_line) {
    const size_t end = std::min(columns, first + in_line);
    if (in_line < columns) out << "Columns " << first + 1 << " to " << end << '\n';
    for (const auto& row : cells) {
      for (size_t column = first; column < end; ++column)
        out << (column == first ? " " : "  ") << std::string(width - row[column].size(), ' ') << row[column];
      out << '\n';
    }
  }
}

/// (1,2,.,.) = and the matrix, for each of the matrices in it.
void write_slices(std::ostream& out, const at::Tensor& tensor, const std::string& place) {
  if (tensor.dim() == 2) {
    out << "(" << place << ".,.) = \n";
    return write_matrix(out, tensor);
  }
  for (int64_t i = 0; i < tensor.size(0); ++i) write_slices(out, tensor[i], place + std::to_string(i + 1) + ",");
}

std::string text_of_complex(const at::Tensor& tensor) {
  std::ostringstream out;
  const auto plain = tensor.detach().resolve_conj().resolve_neg().to(at::kCPU, at::kComplexDouble).contiguous();
  if (plain.dim() == 0)
    out << text_of_number(plain.item<c10::complex<double>>()) << '\n';
  else if (plain.dim() == 1 && plain.numel() > 0)
    write_matrix(out, plain.unsqueeze(1));
  else if (plain.dim() == 2 && plain.numel() > 0)
    write_matrix(out, plain);
  else if (plain.numel() > 0)
    write_slices(out, plain, "");
  out << "[ " << tensor.toString() << "{";
  for (int64_t i = 0; i < tensor.dim(); ++i) out << (i > 0 ? "," : "") << tensor.size(i);
  out << "} ]";
  return out.str();
}

}  // namespace

std::string text_of_tensor(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.is_complex() && !tensor.is_meta()) {
    if (tensor.layout() == at::kStrided) return text_of_complex(tensor);
    if (tensor.layout() == at::kSparse) {
      const auto flat = tensor.coalesce();
      std::ostringstream out;
      out << "indices:\n"
          << flat.indices() << "\nvalues:\n"
          << text_of_complex(flat.values()) << "\nsize:\n"
          << tensor.sizes();
      return out.str();
    }
  }
  std::ostringstream out;
  if (tensor.defined() && tensor.is_meta())
    out << "[ " << tensor.toString() << tensor.sizes() << ", without elements ]";
  else
    out << tensor;
  return out.str();
}

}  // namespace lockstep
