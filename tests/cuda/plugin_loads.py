#!/usr/bin/env python3
"""plugin_loads.py LIBRARY: loads the plug-in, on any machine, and asks it for what it exports."""
import ctypes
import sys

plugin = ctypes.CDLL(sys.argv[1])  # binds all symbols at once


class DevicePlugin(ctypes.Structure):
    _fields_ = [("abi", ctypes.c_uint32), ("select", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_int)),
                ("memory", ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_int, ctypes.POINTER(ctypes.c_uint64),
                                            ctypes.POINTER(ctypes.c_uint64))),
                ("name", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_int))]


class DeviceFunctions(ctypes.Structure):
    _fields_ = [("abi", ctypes.c_uint32), ("libtorch", ctypes.c_char_p), ("fingerprint", ctypes.c_void_p),
                ("first_bad", ctypes.c_void_p)]


device = DevicePlugin.in_dll(plugin, "lockstep_device_plugin")
assert device.abi == 1, device.abi
# No machine has so many GPUs: refused in words, with a driver and without one.
problem = device.select(10000)
assert problem, "select(10000) found no fault"
print("select(10000):", problem.decode())
used, total = ctypes.c_uint64(), ctypes.c_uint64()
assert not device.memory(10000, ctypes.byref(used), ctypes.byref(total))
assert device.name(-1) is None and device.name(10000) is None

plugin.lockstep_device_functions.restype = ctypes.POINTER(DeviceFunctions)
functions = plugin.lockstep_device_functions().contents
assert functions.abi == 1 and functions.fingerprint and functions.first_bad
print("for LibTorch", functions.libtorch.decode())
