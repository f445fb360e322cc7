#!/usr/bin/env python3
"""plugin_loads.py LIBRARY: loads the plug-in, on any machine, and asks it for what it exports."""
import ctypes
import sys

plugin = ctypes.CDLL(sys.argv[1], mode=1)  # RTLD_LAZY, as the library loads it


class DevicePlugin(ctypes.Structure):
    _fields_ = [("abi", ctypes.c_uint32), ("libtorch", ctypes.c_char_p), ("select", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_int)),
                ("memory", ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_int, ctypes.POINTER(ctypes.c_uint64),
                                            ctypes.POINTER(ctypes.c_uint64))),
                ("name", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_int)),
                ("nccl", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p))),
                ("captures", ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_int)),
                ("query", ctypes.CFUNCTYPE(None, ctypes.CFUNCTYPE(None, ctypes.c_void_p), ctypes.c_void_p))]


class DeviceFunctions(ctypes.Structure):
    _fields_ = [("abi", ctypes.c_uint32), ("libtorch", ctypes.c_char_p), ("fingerprint", ctypes.c_void_p),
                ("first_bad", ctypes.c_void_p)]


device = DevicePlugin.in_dll(plugin, "lockstep_device_plugin")
assert device.abi == 3, device.abi
# No machine has so many GPUs: refused in words, with a driver and without one.
problem = device.select(10000)
assert problem, "select(10000) found no fault"
print("select(10000):", problem.decode())
used, total = ctypes.c_uint64(), ctypes.c_uint64()
assert not device.memory(10000, ctypes.byref(used), ctypes.byref(total))
assert device.name(-1) is None and device.name(10000) is None

# Process groups on NCCL, or the reason why there are none: where LibTorch has no CUDA, or the build had no nccl.h.
reason = ctypes.c_char_p()
factory = device.nccl(ctypes.byref(reason))
assert bool(factory) != bool(reason.value), reason.value
print("NCCL:", reason.value.decode() if reason.value else "yes")

# Nothing is captured, and what queries events runs with a driver and without one.
assert not device.captures(0) and not device.captures(10000)
asked = []
device.query(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(asked.append), 7)
assert asked == [7], asked


class DeviceError(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("name", ctypes.c_char * 64), ("text", ctypes.c_char * 256),
                ("lost", ctypes.c_bool)]


class DeviceState(ctypes.Structure):
    _fields_ = [("abi", ctypes.c_uint32), ("work", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)),
                ("finish", ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_int, ctypes.POINTER(DeviceError))),
                ("allocator", ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_int, ctypes.c_bool, ctypes.c_void_p)),
                ("bus_id", ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)),
                ("memory", ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_int, ctypes.POINTER(ctypes.c_uint64),
                                            ctypes.POINTER(ctypes.c_uint64)))]


state = DeviceState.in_dll(plugin, "lockstep_device_state")
assert state.abi == 1, state.abi
# Nothing throws, and nothing is filled in.
assert state.work(0) in (0, 1), state.work(0)
assert not state.memory(10000, ctypes.byref(used), ctypes.byref(total))
text = ctypes.create_string_buffer(b"untouched", 32)
assert not state.bus_id(10000, text, 32) and text.value == b"untouched"
numbers = (ctypes.c_int64 * 10)(*[7] * 10)
assert not state.allocator(10000, True, numbers) and list(numbers) == [7] * 10

plugin.lockstep_device_functions.restype = ctypes.POINTER(DeviceFunctions)
functions = plugin.lockstep_device_functions().contents
assert functions.abi == 1 and functions.fingerprint and functions.first_bad
print("for LibTorch", functions.libtorch.decode())
