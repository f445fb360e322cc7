#!/usr/bin/env python3
"""ptx_to_cpp.py PTX CPP: writes each kernel of PTX, what nvcc has made of kernels.cu, as a function of C++ over the
instructions of machine.h. Ends with an error at an instruction that it does not know.

A function runs one thread of a block up to its next barrier: it returns the number of that barrier, from which it goes
on when it is called again, and -1 at the end. Registers are in a struct that outlives the calls. An address of local
memory or of parameters is one of the host; an address of shared memory is an offset, as in PTX."""

import re
import sys

C_TYPES = {"pred": "bool", "f32": "float", "f64": "double"}
C_TYPES |= {f"{kind}{bits}": f"{'' if kind == 's' else 'u'}int{bits}_t" for kind in "ubs" for bits in (8, 16, 32, 64)}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
SPACES = {"global": "", "local": "", "param": "", "shared": "thread, "}  # beside the address in at()
# Instructions whose operands all have the instruction's type.
PLAIN = {"add", "sub", "mul", "mad", "div", "rem", "min", "max", "neg", "abs", "sqrt", "prmt", "bfi"}
BITWISE = {"and", "or", "xor", "not"}  # words of C++


def operands(text):
    """Split at commas outside of braces and brackets."""
    return [each.strip() for each in re.findall(r"(?:\{[^}]*\}|\[[^]]*\]|[^,])+", text)]


class Kernel:
    def __init__(self, name, parameter, body):
        self.name, self.body = name, body
        self.registers = {}  # prefix → (type, count); without a count for a single one
        self.symbols = {parameter: "reinterpret_cast<uint64_t>(thread.param)"}
        self.shared_bytes = self.local_bytes = 0
        self.barriers = 0

    def declare(self, text):
        """A declaration of registers or memory; whether it is one."""
        if found := re.fullmatch(r"\.reg \.(\w+) %?([a-zA-Z]+)(?:<(\d+)>)?", text):
            self.registers[found[2]] = (found[1], found[3])
        elif found := re.fullmatch(r"\.shared \.align \d+ \.(\w+) (\S+?)(?:\[(\d+)\])?", text):
            self.symbols[found[2]] = f"uint64_t{{{self.shared_bytes}}}"
            self.shared_bytes += int(found[3] or 1) * int(found[1][1:]) // 8
        elif found := re.fullmatch(r"\.local \.align \d+ \.b8\s+(\S+?)\[(\d+)\]", text):
            self.symbols[found[1]] = "reinterpret_cast<uint64_t>(thread.local)"
            self.local_bytes = int(found[2])
        else:
            return text.startswith(".pragma")
        return True

    def register(self, operand):
        """Its expression and type; none of what is no register."""
        found = re.fullmatch(r"%?([a-zA-Z]+)(\d*)", operand)
        if not found or found[1] not in self.registers:
            return None
        return (f"r.{found[1]}" + (f"[{found[2]}]" if found[2] else ""), self.registers[found[1]][0])

    def value(self, operand, kind):
        if found := self.register(operand):
            text = found[0]
        elif operand in self.symbols:
            text = self.symbols[operand]
        elif operand.startswith("0f"):
            text = f"float_bits(0x{operand[2:]}u)"
        elif operand.startswith("0d"):
            text = f"double_bits(0x{operand[2:]}ull)"
        elif operand in ("%tid.x", "%ctaid.x"):
            text = "thread." + operand[1:-2]
        else:
            text = f"uint64_t{{{int(operand, 0) & (1 << 64) - 1}ull}}"
        return f"as<{C_TYPES[kind]}>({text})"

    def put(self, operand, expression):
        return f"put({self.register(operand)[0]}, {expression});"

    def address(self, operand, kind_of_memory):
        base, _, offset = operand[1:-1].partition("+")
        return f"at({SPACES[kind_of_memory]}{self.value(base.strip(), 'u64')} + {int(offset or 0)})"

    def moves(self, elements, kind, direction, operand, memory):
        """Loads or stores of one element or a vector, which is aligned as a whole."""
        size = int(kind[1:]) // 8
        lines = [f"uint8_t* a = {self.address(operand, memory)}; aligned(a, {size * len(elements)});"]
        for i, each in enumerate(elements):
            place = f"a + {i * size}"
            lines.append(self.put(each, f"load<{C_TYPES[kind]}>({place})") if direction == "ld" else
                         f"store({place}, {self.value(each, kind)});")
        return "{ " + " ".join(lines) + " }"

    def instruction(self, opcode, given):
        parts = opcode.split(".")
        name, kind = parts[0], parts[-1]
        listed = [operands(each[1:-1]) if each.startswith("{") else [each] for each in given]
        c_type = C_TYPES.get(kind)

        def typed(values, each=kind):
            return ", ".join(self.value(value, each) for value in values)

        if name == "bra":
            return f"goto {label(given[0])};"
        if name == "ret":
            return "return -1;"
        if name == "bar":
            self.barriers += 1
            return f"return {self.barriers}; case {self.barriers}:;"
        if name in ("membar", "fence"):
            return "fence();"
        if name in ("ld", "st"):
            memory = next((part for part in parts if part in SPACES), "global")
            elements, operand = (listed[0], given[1]) if name == "ld" else (listed[1], given[0])
            return self.moves(elements, kind, name, operand, memory)
        if name == "atom":
            operation = next(part for part in parts if part in ("add", "or", "min"))
            memory = next((part for part in parts if part in SPACES), "global")
            place = self.address(given[1], memory)
            return self.put(given[0], f"atomic_{operation}({place}, {typed(given[2:], 'u32')})")
        if name == "mov" and len(listed[0]) > 1:
            width = int(kind[1:]) // len(listed[0])
            lines = [f"const uint64_t v = {self.value(given[1], kind)};"]
            for i, each in enumerate(listed[0]):
                lines.append(self.put(each, f"as<uint{width}_t>(v >> {i * width})"))
            return "{ " + " ".join(lines) + " }"
        if name == "mov" and len(listed[1]) > 1:
            width = int(kind[1:]) // len(listed[1])
            whole = " | ".join(f"uint64_t{{{self.value(each, f'u{width}')}}} << {i * width}"
                               for i, each in enumerate(listed[1]))
            return self.put(given[0], f"as<{c_type}>({whole})")
        if name in ("mov", "cvta"):
            if "shared" in parts:
                raise ValueError(opcode)
            return self.put(given[0], self.value(given[1], kind))
        if name == "setp":
            left, right = self.value(given[1], kind), self.value(given[2], kind)
            return self.put(given[0], f"{left} {COMPARISONS[parts[1]]} {right}")
        if name == "selp":
            return self.put(given[0], f"{self.value(given[3], 'pred')} ? {typed(given[1:2])} : {typed(given[2:3])}")
        if name == "cvt" and len(parts) >= 3:
            bits, source = ("u16", "Half") if kind == "f16" else (kind, c_type)
            return self.put(given[0], f"convert<{C_TYPES[parts[-2]]}, {source}>({self.value(given[1], bits)})")
        if name in ("shl", "shr"):
            return self.put(given[0], f"{name}<{c_type}>({self.value(given[1], kind)}, {self.value(given[2], 'u32')})")
        if name in ("mul", "mad") and "wide" in parts:
            wide = f"{kind[0]}{2 * int(kind[1:])}"
            product = f"mul<{C_TYPES[wide]}>({typed(given[1:3])})"
            return self.put(given[0], product if name == "mul" else f"add({product}, {self.value(given[3], wide)})")
        if name in PLAIN | BITWISE and not {"hi", "ftz", "sat", "cc"} & set(parts):
            return self.put(given[0], f"{name}{'_' if name in BITWISE else ''}<{c_type}>({typed(given[1:])})")
        raise ValueError(opcode)

    def write(self, out):
        statements = []
        for text in re.split(r"[;\n]", self.body):
            text = text.strip()
            while found := re.match(r"(\$?[\w$]+):\s*", text):
                statements.append(f"{label(found[1])}:;")
                text = text[found.end():]
            text = re.sub(r"^[{]\s+|^[{}]$", "", text)  # of a block of inline assembly
            if not text or self.declare(" ".join(text.split())):
                continue
            guard = ""
            if found := re.match(r"@(!?)(%p\d+)\s+", text):
                guard = f"if ({found[1]}{self.register(found[2])[0]}) "
                text = text[found.end():]
            opcode, *rest = text.split(maxsplit=1)
            try:
                statements.append(guard + self.instruction(opcode, operands("".join(rest))))
            except (KeyError, TypeError, ValueError) as error:
                sys.exit(f"{sys.argv[1]}: an instruction that ptx_to_cpp.py does not know: {text} ({error})")
        out.write(f"struct Registers_{self.name} {{\n")
        for prefix, (kind, count) in self.registers.items():
            out.write(f"  {C_TYPES[kind]} {prefix}{f'[{count}]' if count else ''};\n")
        out.write(f"""}};
static int run_{self.name}(Thread& thread, int resume) {{
  auto& r = *static_cast<Registers_{self.name}*>(thread.registers);
  switch (resume) {{
    case 0:;
""")
        out.write("\n".join(statements))
        out.write(f"""
  }}
  return -1;
}}
const Kernel {self.name} = {{run_{self.name}, sizeof(Registers_{self.name}), {self.shared_bytes}, {self.local_bytes}}};
""")


def label(name):
    return "l_" + name.replace("$", "_")


def main():
    text = re.sub(r"//[^\n]*", "", open(sys.argv[1], encoding="utf-8").read())
    entry = r"\.entry\s+(\S+?)\(\s*\.param[^\n]*?(\S+)\[\d+\]\s*\)[^{]*\{(.*?)\n\}"
    kernels = [Kernel(re.search(r"(fingerprint|sentinel)_kernel", found[1])[0], found[2], found[3])
               for found in re.finditer(entry, text, re.S)]
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        out.write('#include "tests/cuda/ptx/machine.h"\n\nnamespace lockstep::cuda::ptx {\n')
        for kernel in kernels:
            kernel.write(out)
        out.write("}  // namespace lockstep::cuda::ptx\n")


main()
